"""Text features by the signed hashing trick, which needs no vocabulary."""

import re
from collections.abc import Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..core.validation import as_int
from .dataset import DataError, Dataset, build_dataset, parse_labels

WORD = re.compile(r"\w+")
NO_WORDS = "have no words in any training or validation row: their numbers in x and y mean nothing"


def features(texts: Sequence[str], width: int) -> NDArray[np.float32]:
    """Hash texts into rows of `width` features (Weinberger et al., 2009):

        a_k = sum of s(w) over the words w with h(w) mod width = k,   divided by |a|

    Words are runs of letters, digits and _, ignoring case. h(w) is the 8-byte BLAKE2b digest of w
    in UTF-8 as a little-endian integer; s(w) = -1 if h(w) is 2^63 or more, else 1. Words with the
    same k cancel as often as they add, so that inner products of rows are unbiased. A text without
    words gives 0.
    """
    as_int("hashed", width, 1)
    slots: dict[str, tuple[int, float]] = {}
    rows = np.zeros((len(texts), width))
    for row, text in zip(rows, texts):
        for word in WORD.findall(text.casefold()):
            if word not in slots:
                code = int.from_bytes(blake2b(word.encode(), digest_size=8).digest(), "little")
                slots[word] = code % width, -1.0 if code >> 63 else 1.0
            slot, sign = slots[word]
            row[slot] += sign
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return (rows / np.where(lengths > 0, lengths, 1)).astype(np.float32)


def names(column: str, width: int) -> tuple[str, ...]:
    """Return the names of the features of a text column."""
    return tuple(f"{column}#{k}" for k in range(width))


def mark_unused(
    names: Sequence[str], rows: Sequence[NDArray[Any]], width: int
) -> tuple[tuple[str, ...], int]:
    """Mark the names of hashed features, the last `width`, that no row uses; and count them."""
    used = np.any([np.any(agent_rows != 0, axis=0) for agent_rows in rows], axis=0)
    used[: len(names) - width] = True
    marked = (name if is_used else f"{name} (no words)" for name, is_used in zip(names, used))
    return tuple(marked), int(np.sum(~used))


def lines(path: str | Path, hashed: int, real: bool = False) -> Dataset:
    """Read a plain text file with one label and one text per line, separated by a blank or tab.

    Args:
        path: File to read.
        hashed: Number of features to hash the words into.
        real: Treat labels as numbers to regress on; else they are integers or names.
    """
    path = Path(path)
    try:
        text_lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (UnicodeDecodeError, OSError) as cause:
        raise DataError(f"{path}: not a readable utf-8 text ({cause}); correct it") from cause
    numbered_lines = [
        (n, line.split(None, 1)) for n, line in enumerate(text_lines, 1) if line.strip()
    ]
    for n, line in numbered_lines:
        if len(line) < 2:
            raise DataError(f"{path}, line {n}: a label without a text; correct the line")
    if not numbered_lines:
        raise DataError(f"{path}: no lines; give a label and a text a line")
    labels = parse_labels(
        [line[0] for _, line in numbered_lines],
        [n for n, _ in numbered_lines],
        "label",
        path,
        real=real,
    )
    rows = features([line[1] for _, line in numbered_lines], hashed)
    return build_dataset(path, rows, labels, names("text", hashed), real=real)
