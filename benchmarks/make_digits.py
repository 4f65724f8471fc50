"""Write diamond/data/digits.npz, the dataset embedded in the package (run once, needs sklearn).

Source: the test half (1,797 images) of "Optical Recognition of Handwritten Digits", E. Alpaydin and
C. Kaynak, 1998, UCI Machine Learning Repository, doi 10.24432/C50P49, licence CC BY 4.0, as
distributed by scikit-learn. Changed here: stored as uint8, images (1797, 8, 8) with values 0..16.
"""

from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits

TARGET = Path(__file__).parents[1] / "diamond" / "data" / "digits.npz"

if __name__ == "__main__":
    source = load_digits()
    images, labels = source.images.astype(np.uint8), source.target.astype(np.uint8)
    assert (images == source.images).all() and (labels == source.target).all()
    np.savez_compressed(TARGET, images=images, labels=labels)
    print(f"{TARGET.name}: {TARGET.stat().st_size} bytes, {len(images)} images")
