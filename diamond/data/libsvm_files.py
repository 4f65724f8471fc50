"""Strict, vectorized reader of LIBSVM (svmlight) text."""

import bz2
import gzip
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from .dataset import DataError, Dataset, LabelledRows, encode

LARGEST = float(np.finfo(np.float32).max)
DENSE_LIMIT = 2**32  # bytes: a larger table is refused rather than swapped out
_ALLOWED, _BLANK, _DIGIT = (
    np.isin(np.arange(256), list(characters))
    for characters in (b"0123456789+-.eE: \t\r\n", b" \t\r\n", b"0123456789")
)


def libsvm(path: str | Path, features: int | None = None, real: bool = False) -> Dataset:
    """Read LIBSVM text (also .bz2 or .gz): each line is a label and ascending index:value pairs.

    Args:
        path: File to read.
        features: Number of features; by default the highest index, counted from 1.
        real: Treat labels as numbers to regress on; else they are integers.
    """
    path = Path(path)
    rows, labels = read_dense(path, features, real)
    classes = () if real else np.unique(labels)
    return Dataset(
        name=path.name,
        train=(rows, labels.astype(np.float32) if real else encode(labels, classes, path)),
        test=None,
        classes=tuple(str(label) for label in classes),
        shape=rows.shape[1:],
        files=(path,),
    )


def read_encoded(path: Path, features: int, labels: Sequence[int]) -> LabelledRows:
    """Read a file of known width and labels; encode the labels in their order."""
    rows, values = read_dense(path, features)
    return rows, encode(values, labels, path)


def read_dense(
    path: Path, features: int | None, real: bool = False
) -> tuple[NDArray[np.float32], NDArray[Any]]:
    """Parse dense features (rows, width) and the labels as written: integers, or `real`."""
    raw = read_bytes(path) + b"\n"  # so that every line ends
    text = np.frombuffer(raw, np.uint8)
    newline = np.flatnonzero(text == ord("\n"))

    def refuse(offset: int, reason: str) -> NoReturn:
        begin = max(raw.rfind(blank, 0, offset) for blank in (b" ", b"\t", b"\r", b"\n")) + 1
        word = (raw[begin:].split(None, 1) or [b""])[0].decode("ascii", "replace")
        line = np.searchsorted(newline, offset) + 1
        raise DataError(f"{path}, line {line}: {word[:40]!r}: {reason}; correct the line")

    def check(wrong: NDArray[np.bool_], offsets: NDArray[np.intp], reason: str) -> None:
        if wrong.any():
            refuse(int(offsets[np.argmax(wrong)]), reason)

    # 1) Words: the first of a line is the label, every other word has exactly one colon.
    check(~_ALLOWED[text], np.arange(len(text)), "not a label or index:value of finite numbers")
    blank = _BLANK[text]
    start = np.flatnonzero(~blank & np.concatenate([[True], blank[:-1]]))
    if not start.size:
        raise DataError(f"{path}: no rows; give a file with at least one")
    line = np.searchsorted(newline, start)
    is_label = np.concatenate([[True], line[1:] != line[:-1]])
    empty = np.flatnonzero(line[is_label] != np.arange(is_label.sum()))
    if empty.size:
        raise DataError(f"{path}, line {empty[0] + 1}: empty; remove it or give its label")
    colon = np.flatnonzero(text == ord(":"))
    colons = np.bincount(np.searchsorted(start, colon, "right") - 1, minlength=len(start))
    check(is_label & (colons != 0), start, "a line must begin with its label")
    check(~is_label & (colons != 1), start, "not of the form index:value")
    entry = start[~is_label]
    check(blank[colon - 1] | blank[colon + 1], entry, "index or value is missing")
    non_digits = np.concatenate([[0], np.cumsum(~_DIGIT[text], dtype=np.int32)])
    check(non_digits[colon] != non_digits[entry], entry, "an index must be a whole number from 1")

    # 2) Numbers, in the order of the words; an entry has two.
    place = np.cumsum(1 + colons) - 1 - colons
    words = raw.replace(b":", b" ").split()
    try:
        numbers = np.fromiter(map(float, words), np.float64, len(words))
    except ValueError:
        bad = next(k for k, word in enumerate(words) if not _is_number(word))
        refuse(int(start[np.searchsorted(place, bad, "right") - 1]), "not a number")
    index, row = numbers[place[~is_label]], line[~is_label]
    with np.errstate(over="ignore"):
        value = numbers[place[~is_label] + 1].astype(np.float32)
    labels = numbers[place[is_label]]
    check(~np.isfinite(value), entry, "the value is not finite in float32")
    check(index < 1, entry, "indices count from 1")
    descends = (row[1:] == row[:-1]) & (index[1:] <= index[:-1])
    check(descends, entry[1:], "indices must ascend within a line")
    is_whole = np.isfinite(labels) & (labels == np.floor(labels)) & (abs(labels) < 2**53)
    if real:
        check(~(abs(labels) <= LARGEST), start[is_label], "the label is not finite in float32")
    else:
        check(~is_whole, start[is_label], "the label must be a whole number")

    # 3) The dense table.
    width = int(index.max(initial=1)) if features is None else features
    check(index > width, entry, f"index above the declared width of {width} features")
    if len(labels) * width * 4 > DENSE_LIMIT:
        raise DataError(
            f"{path}: {len(labels)} rows x {width} features need {len(labels) * width * 4} bytes, "
            f"above {DENSE_LIMIT}; take fewer rows or features"
        )
    dense = np.zeros((len(labels), width), np.float32)
    dense[row, index.astype(np.int64) - 1] = value
    return dense, labels if real else labels.astype(np.int64)


def read_bytes(path: Path) -> bytes:
    """Read a file, decompressing .bz2 and .gz."""
    expand = {".bz2": bz2.decompress, ".gz": gzip.decompress}.get(path.suffix, bytes)
    try:
        return expand(path.read_bytes())
    except FileNotFoundError as cause:
        raise DataError(f"{path}: no such file; correct the path") from cause
    except (OSError, EOFError, ValueError, zlib.error) as cause:
        raise DataError(f"{path}: cannot be read ({cause}); fetch the file again") from cause


def _is_number(word: bytes) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True
