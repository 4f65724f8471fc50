"""Reader of gzipped idx files, the layout of MNIST."""

import gzip
import struct
import zlib
from math import prod
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from .dataset import DataError


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
