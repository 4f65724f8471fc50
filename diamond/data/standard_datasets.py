"""Small standard data sets (MNIST, a9a, ijcnn1, the embedded digits), and where all of them are."""

import gzip
import struct
import zlib
from importlib import resources
from math import prod
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from . import libsvm_files
from .cifar import ARCHIVE, BATCHES, FOLDER, TILES
from .dataset import DataError, Dataset, LabelledRows
from .download import DataFile, Layout
from .fetch import cache, locate, named_folders

# Digests of the original files.
MNIST = tuple(
    DataFile(f"{name}-ubyte.gz", f"sha256:{digest}")
    for name, digest in {
        "train-images-idx3": "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
        "train-labels-idx1": "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
        "t10k-images-idx3": "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
        "t10k-labels-idx1": "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
    }.items()
)
A9A = (
    DataFile("a9a", "sha256:f5d5ffd8d865ff41328e7ee043e4b020816914ff6843ff15b98905ddbedce906"),
    DataFile("a9a.t", "sha256:1f448a153f0320399a7e40836eb207655b0bde0f21fc941cc472193daa9f5de9"),
)
# LIBSVM's own file has no published digest; a rewritten public copy has a known one.
IJCNN1_COPY = (
    DataFile(
        "ijcnn1.trn.bz2", "sha256:b38a4198ce142d43e96fb86d17b87211feec1f909ac344fa057455c69de29de3"
    ),
)
IJCNN1 = (DataFile("ijcnn1.bz2", None),)


def mnist(folder: str | Path | None = None) -> Dataset:
    """Load MNIST: 60,000 and 10,000 digits, 28 x 28 pixels / 255, flattened to 784.

    Args:
        folder: Folder of the files; by default the usual locations.
    """
    files = locate("mnist", [MNIST], folder)
    return Dataset(
        name="mnist",
        train=_read_mnist(files[0], files[1]),
        test=_read_mnist(files[2], files[3]),
        classes=tuple("0123456789"),
        shape=(28, 28),
        files=files,
    )


def _read_mnist(images: Path, labels: Path) -> LabelledRows:
    pixels, labels_of_images = read_images_and_labels(images, labels, 10)
    flat = pixels.reshape(len(pixels), -1)
    return np.divide(flat, 255, dtype=np.float32), labels_of_images.astype(np.int32)


def a9a(folder: str | Path | None = None) -> Dataset:
    """Load a9a: 32,561 and 16,281 rows of 123 binary features; label 1 is an income over 50K.

    Args:
        folder: Folder of the files; by default the usual locations.
    """
    files = locate("a9a", [A9A], folder)
    train, test = (libsvm_files.read_encoded(path, 123, (-1, 1)) for path in files)
    return Dataset("a9a", train, test, classes=("-1", "+1"), shape=(123,), files=files)


def ijcnn1(folder: str | Path | None = None) -> Dataset:
    """Load the 49,990 training rows of ijcnn1: 22 features, 9.7 % positive; no test rows.

    LIBSVM's ijcnn1.bz2 has no published digest: its row and label counts are checked instead.

    Args:
        folder: Folder of the files; by default the usual locations.
    """
    files = locate("ijcnn1", [IJCNN1, IJCNN1_COPY], folder)
    train = libsvm_files.read_encoded(files[0], 22, (-1, 1))
    counts = (len(train[1]), int(train[1].sum()))
    if counts != (49_990, 4_853):
        raise DataError(
            f"{files[0]}: {counts[0]} rows, {counts[1]} positive, not 49990 and 4853; "
            "it is another set or damaged: fetch it again"
        )
    return Dataset("ijcnn1", train, None, classes=("-1", "+1"), shape=(22,), files=files)


def digits() -> Dataset:
    """Load the embedded digits: 1,797 images, 8 x 8 pixels / 16, flattened to 64; no test rows.

    Source: the test half of "Optical Recognition of Handwritten Digits" (E. Alpaydin and C. Kaynak,
    1998, UCI Machine Learning Repository, CC BY 4.0), as scikit-learn distributes it.
    """
    source = resources.files(__package__) / "digits.npz"
    with source.open("rb") as stream, np.load(stream, allow_pickle=False) as stored:
        images, labels = stored["images"], stored["labels"]
    rows = np.divide(images.reshape(len(images), -1), 16, dtype=np.float32)
    classes = tuple("0123456789")
    return Dataset("digits", (rows, labels.astype(np.int32)), None, classes, shape=(8, 8))


def read_idx(path: Path, dimensions: int) -> NDArray[np.uint8]:
    """Read the unsigned bytes of a gzipped idx file with this number of dimensions.

    Layout, big-endian: 0, 0, 8 (uint8), the number of dimensions, each length as uint32, the bytes.
    """
    try:
        raw = gzip.decompress(path.read_bytes())
    except (gzip.BadGzipFile, EOFError, zlib.error) as cause:
        raise DataError(
            f"{path}: damaged gzip ({str(cause) or 'truncated'}); fetch the file again"
        ) from cause
    magic, header = 0x0800 + dimensions, 4 + 4 * dimensions
    if len(raw) < header:
        raise DataError(
            f"{path}: {len(raw)} bytes, shorter than an idx header ({header}); fetch the file again"
        )
    found_magic, *lengths = struct.unpack(f">{1 + dimensions}I", raw[:header])
    if found_magic != magic:
        raise DataError(
            f"{path}: magic number {found_magic}, not {magic} (idx of uint8 in {dimensions} "
            "dimensions); it is another kind of file: put the right one in its place"
        )
    if len(raw) - header != prod(lengths):
        raise DataError(
            f"{path}: {len(raw) - header} bytes of data, but the header declares "
            f"{' x '.join(map(str, lengths))} = {prod(lengths)}; fetch the file again"
        )
    return np.frombuffer(raw, np.uint8, offset=header).reshape(lengths)


def read_images_and_labels(
    images: Path, labels: Path, classes: int
) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Read matching images (rows, height, width) and labels (rows,)."""
    pixels, codes = read_idx(images, 3), read_idx(labels, 1)
    if len(pixels) != len(codes):
        raise DataError(
            f"{images} has {len(pixels)} images but {labels} has {len(codes)} labels; "
            "take both from the same set"
        )
    wrong = np.flatnonzero(codes >= classes)
    if wrong.size:
        raise DataError(
            f"{labels}, row {wrong[0] + 1}: label {codes[wrong[0]]} is not in 0..{classes - 1}; "
            "fetch the file again"
        )
    return pixels, codes


LAYOUTS: dict[str, list[Layout]] = {
    "a9a": [A9A],
    "cifar10": [
        ARCHIVE,
        TILES,
        tuple(DataFile(FOLDER + f.name, f.digest) for f in BATCHES),
        BATCHES,
    ],
    "ijcnn1": [IJCNN1, IJCNN1_COPY],
    "mnist": [MNIST],
}


def find_folders(folder: str | Path | None = None) -> dict[str, Path | None]:
    """Find the folder that holds all files of each data set.

    Args:
        folder: Folder to search first; by default the usual locations.

    Returns:
        The folder by name of the data set; None if there is none.
    """
    store = cache()
    roots = [*named_folders(folder), *([store] if store else [])]

    def find(name: str) -> Path | None:
        for candidate in (candidate for root in roots for candidate in (root / name, root)):
            if any(all((candidate / f.name).is_file() for f in layout) for layout in LAYOUTS[name]):
                return candidate
        return None

    return {name: find(name) for name in LAYOUTS}
