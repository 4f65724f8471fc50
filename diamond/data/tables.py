"""Reader of the user's own csv tables."""

from collections.abc import Sequence
from csv import Error, reader
from pathlib import Path

import numpy as np

from ..core.suggestions import did_you_mean
from . import hashed_text
from .dataset import DataError, Dataset, labels_of, number, refuse, tabulated


def csv(
    path: str | Path,
    label: str,
    site: str | None = None,
    real: bool = False,
    features: Sequence[str] | None = None,
    hashed: int | None = None,
    text: str = "text",
) -> Dataset:
    """Read a csv table with a header row: a label column, feature columns, perhaps a site column.

    Labels are whole numbers or names, and `classes` lists them in ascending order; `real`: they are
    numbers to regress on. `features` names the columns to use, all others by default. `hashed`: the
    words of the column `text` become so many features, after the others (`hashed_text`).
    """
    path = Path(path)
    lines, header = _lines(path)
    columns = chosen(path, header, label, site, features, text if hashed else None)
    numbers = [n for n, _ in lines]
    column = lambda name: [cells[header.index(name)].strip() for _, cells in lines]
    bad: list[str] = []
    cells = [[number(n, own[k], header[k], bad) for k in columns] for n, own in lines]
    rows = np.array(cells).reshape(len(lines), len(columns))
    for name in (label, site):
        own = [] if name is None else column(name)
        empty = [n for n, value in zip(numbers, own) if not value]
        bad += [f"row {n}, column {name!r}: empty" for n in empty]
    refuse(path, bad, "correct these cells")
    names = [header[k] for k in columns]
    if hashed:
        rows = np.hstack([rows, hashed_text.features(column(text), hashed)])
        names += hashed_text.names(text, hashed)
    marks = labels_of(column(label), numbers, label, path, real)
    sites = None if site is None else np.array(column(site))
    return tabulated(path, rows, marks, names, real, sites)


def chosen(
    path: Path,
    header: list[str],
    label: str,
    site: str | None,
    features: Sequence[str] | None,
    text: str | None = None,
) -> list[int]:
    """Where the features are in the header, in their order; a column of text is none."""
    apart = [label, *(name for name in (site, text) if name is not None)]
    for name in [*apart, *(features or ())]:
        if name not in header:
            raise DataError(f"{path}: no column {name!r}; {did_you_mean(name, header)}")
    if features is not None and (twice := {*features} & {*apart}):
        raise DataError(f"{path}: {min(twice)!r} cannot be a feature too; leave it out of features")
    names = [name for name in header if name not in apart] if features is None else features
    if not names and text is None:
        raise DataError(f"{path}: no feature column beside {label!r}; add one")
    return [header.index(name) for name in names]


def _lines(path: Path) -> tuple[list[tuple[int, list[str]]], list[str]]:
    """Return the numbered lines below the header, all of its width, and the header."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as stream:
            table = reader(stream, strict=True)
            lines = [(table.line_num, cells) for cells in table if cells]
    except (Error, UnicodeDecodeError, OSError) as cause:
        raise DataError(f"{path}: not a readable utf-8 csv table ({cause}); correct it") from cause
    if len(lines) < 2:
        raise DataError(f"{path}: no rows below the header; give a header row and data rows")
    header = [name.strip() for name in lines[0][1]]
    if len(set(header)) < len(header) or "" in header:
        raise DataError(f"{path}: header {', '.join(header)} has an empty or repeated name")
    for line, cells in lines[1:]:
        if len(cells) != len(header):
            raise DataError(
                f"{path}, row {line}: {len(cells)} cells under {len(header)} columns; "
                "correct the row"
            )
    return lines[1:], header
