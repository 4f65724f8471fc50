"""CIFAR-10 from the official binary files, their archive, or lossless picture tiles."""

import tarfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .dataset import DataError, Dataset, LabelledRows
from .download import INSTALL, DataFile, Layout
from .fetch import locate

CLASSES = (
    *("airplane", "automobile", "bird", "cat", "deer"),
    *("dog", "frog", "horse", "ship", "truck"),
)
RECORD = 1 + 3 * 32 * 32  # bytes: label, then the red, green and blue planes
PART = 10_000  # images in each of the six parts
FOLDER = "cifar-10-batches-bin/"
BATCHES: Layout = (
    DataFile("data_batch_1.bin", "md5:5dd7e06a14cb22eb9f671a540d1b7c25"),
    DataFile("data_batch_2.bin", "md5:5ea93a67294ea407fff1d09f752e9692"),
    DataFile("data_batch_3.bin", "md5:942cd6a4bcdd0dd3c604fbe906cb4421"),
    DataFile("data_batch_4.bin", "md5:ae636b3ba5c66a11e91e8cb52e771fcb"),
    DataFile("data_batch_5.bin", "md5:53f37980c15c3d472c316c40844f3f0d"),
    DataFile("test_batch.bin", "md5:803d5f7f4d78ea53de84dbe85f74fb6d"),
)
ARCHIVE = (DataFile("cifar-10-binary.tar.gz", "md5:c32a1d4ab5d03f1284b67883e8d87530"),)
TILES: Layout = tuple(
    DataFile(f"cifar10_{name}", f"sha256:{digest}")
    for name, digest in {
        "train_1.webp": "0c540445580e2b4751a4fb5e79175f3eced765d47d186c46cf6aaa7a076c47d9",
        "train_2.webp": "ecd97fbddf53a95c7a487a46490001fbae20af0d14e0978cf2a8c74001ef5eb5",
        "train_3.webp": "87d2cf78736125556233d43ffcd3ddbe695aeb7b824d7ed6b66109850a5d1de8",
        "train_4.webp": "f41df0ed31f34cd58f8b19d9da67ed5296b2f55704e1f8f30b45d15e329937d3",
        "train_5.webp": "858cca32ece0b9e1d8464b51679d9620f190eb78e39b441cf4ab9769b74e9b88",
        "test.webp": "8971ef90860676757950366c509f0cefb6616bafce6c7c03445db2dd78167ef4",
        "train_labels.npy": "fad921ba16b0efeebb54393d1351545d1fe1a357f6f81324c821e3e11b956c70",
        "test_labels.npy": "19004b019bd095265b4ce6637c9ff979c66abcbc8e658a665f791b487cdea5eb",
    }.items()
)
ImagesAndLabels = tuple[NDArray[np.uint8], NDArray[np.uint8]]  # (images, 32, 32, 3) and (images,)


def cifar10(folder: str | Path | None = None, batches: int = 5) -> Dataset:
    """Load CIFAR-10: 50,000 and 10,000 images, 32 x 32 x 3 pixels / 255, flattened to 3072.

    Args:
        folder: Folder of the files; by default the usual locations.
        batches: Number of training files to read, 10,000 images each. If fewer than five, no test
            file is read and `test` is None.
    """
    if not 1 <= batches <= 5:
        raise DataError(f"batches = {batches}: CIFAR-10 has 5 training files; ask for 1 to 5")
    selected = slice(0, 6 if batches == 5 else batches)
    in_folder = tuple(DataFile(FOLDER + file.name, file.digest) for file in BATCHES[selected])
    labels = TILES[6:] if batches == 5 else TILES[6:7]
    layouts: list[Layout] = [ARCHIVE, (*TILES[selected], *labels), in_folder, BATCHES[selected]]
    files = locate("cifar10", layouts, folder)
    if files[0].suffix == ".webp":
        parts = read_tiles(files[selected], files[selected.stop :])
    elif files[0].suffix == ".bin":
        parts = (parse_records(path.read_bytes(), path) for path in files)
    else:
        parts = read_archive(files[0])
    train = _gather(parts, batches)
    test = _gather(parts, 1) if batches == 5 else None
    return Dataset("cifar10", train, test, CLASSES, shape=(32, 32, 3), files=files)


def _gather(parts: Iterator[ImagesAndLabels], count: int) -> LabelledRows:
    # Part by part into one array, so that peak memory stays near the size of the result.
    rows = np.empty((count, PART, RECORD - 1), np.float32)
    labels = np.empty((count, PART), np.int32)
    for k in range(count):
        images, labels[k] = next(parts)
        np.divide(images.reshape(PART, -1), 255, out=rows[k], dtype=np.float32)
    return rows.reshape(-1, RECORD - 1), labels.reshape(-1)


def parse_records(raw: bytes, path: Path) -> ImagesAndLabels:
    """Decode the official binary layout of one part."""
    if len(raw) != PART * RECORD:
        raise DataError(
            f"{path}: {len(raw)} bytes, not {PART} records of {RECORD}; fetch the file again"
        )
    table = np.frombuffer(raw, np.uint8).reshape(PART, RECORD)
    images = table[:, 1:].reshape(PART, 3, 32, 32).transpose(0, 2, 3, 1)
    return images, check_labels(table[:, 0], path, PART)


def read_archive(path: Path) -> Iterator[ImagesAndLabels]:
    """Decode the six parts inside the official archive, without unpacking it to disk."""
    try:
        with tarfile.open(path, "r:gz") as box:
            inside = {member.name: member for member in box.getmembers() if member.isfile()}
            for file in BATCHES:
                member = inside.get(FOLDER + file.name)
                stream = box.extractfile(member) if member else None
                if stream is None:
                    raise DataError(f"{path}: no {FOLDER}{file.name} inside; fetch the file again")
                yield parse_records(stream.read(), path / file.name)
    except (tarfile.TarError, EOFError, zlib.error) as cause:
        raise DataError(f"{path}: damaged archive ({cause}); fetch the file again") from cause


def read_tiles(
    pictures: tuple[Path, ...], label_files: tuple[Path, ...]
) -> Iterator[ImagesAndLabels]:
    """Decode pictures of 100 x 100 tiles; image i is at tile row i // 100, column i % 100."""
    labels = np.concatenate([read_labels(path, n * PART) for path, n in zip(label_files, (5, 1))])
    for k, path in enumerate(pictures):
        yield read_picture(path), labels[k * PART : (k + 1) * PART]


def read_picture(path: Path) -> NDArray[np.uint8]:
    """Cut one lossless WebP picture of 3200 x 3200 into its 10,000 images."""
    try:
        from PIL import Image
    except ImportError as cause:
        raise DataError(f"{path}: reading WebP needs Pillow: {INSTALL}") from cause
    try:
        with Image.open(path, formats=["WEBP"]) as image:
            size, mode, pixels = image.size, image.mode, np.asarray(image)
    except (OSError, SyntaxError) as cause:
        raise DataError(f"{path}: not a whole WebP picture; fetch the file again") from cause
    if size != (3200, 3200) or mode != "RGB":
        raise DataError(f"{path}: {mode} {size}, not RGB (3200, 3200); fetch the file again")
    return pixels.reshape(100, 32, 100, 32, 3).transpose(0, 2, 1, 3, 4).reshape(PART, 32, 32, 3)


def read_labels(path: Path, length: int) -> NDArray[np.uint8]:
    """Read a `.npy` vector of uint8 labels."""
    try:
        stored = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError) as cause:
        raise DataError(f"{path}: not a whole npy array ({cause}); fetch it again") from cause
    return check_labels(stored, path, length)


def check_labels(labels: NDArray[Any], path: Path, length: int) -> NDArray[np.uint8]:
    """Refuse labels that are not `length` bytes in 0..9."""
    if labels.dtype != np.uint8 or labels.shape != (length,):
        raise DataError(
            f"{path}: labels {labels.dtype} {labels.shape}, not uint8 ({length},); fetch it again"
        )
    wrong = np.flatnonzero(labels > 9)
    if wrong.size:
        raise DataError(
            f"{path}, row {wrong[0] + 1}: label {labels[wrong[0]]} is not in 0..9; fetch it again"
        )
    return labels
