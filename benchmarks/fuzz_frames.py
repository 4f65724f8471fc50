"""A million mutated frames through the decoder: `python benchmarks/fuzz_frames.py [COUNT]`.

Refused by `FrameError`, or finite numbers of the right shapes; anything else ends the run. Prints
how many were accepted, the rate, and the growth of the process.
"""

import resource
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))
from frame_fuzzing import fuzz


def main(count: int) -> None:
    """Fuzz in ten parts, each from its own seed."""
    peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    fuzz(1000, seed=10)
    before, begun = peak(), time.perf_counter()
    accepted = sum(fuzz(count // 10, seed) for seed in range(10))
    took = time.perf_counter() - begun
    print(f"{count} frames, {accepted} accepted, none raised anything but FrameError")
    print(f"{count / took:.0f} frames/s; memory {before:.0f} MB before, {peak():.0f} MB after")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000)
