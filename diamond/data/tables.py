"""Reader of the user's own csv tables."""

import math
from collections.abc import Sequence
from csv import Error, reader
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from .dataset import DataError, Dataset, encode, narrow

LARGEST = float(np.finfo(np.float32).max)
SHOWN = 10  # bad cells listed before the rest is only counted


def csv(
    path: str | Path,
    label: str,
    site: str | None = None,
    real: bool = False,
    features: Sequence[str] | None = None,
) -> Dataset:
    """Read a csv table with a header row: a label column, feature columns, perhaps a site column.

    Labels are whole numbers or names, and `classes` lists them in ascending order; `real`: they are
    numbers to regress on. `features` names the columns to use, all others by default.
    """
    path = Path(path)
    lines, header = _lines(path)
    columns = chosen(path, header, label, site, features)
    apart = {header.index(name) for name in (label, site) if name is not None}
    bad: list[str] = []
    rows = np.array(
        [[_number(row, cells[k], header[k], bad) for k in columns] for row, cells in lines]
    )
    names = {k: [cells[k].strip() for _, cells in lines] for k in apart}
    for k, values in names.items():
        bad += [
            f"row {n}, column {header[k]!r}: empty"
            for (n, _), value in zip(lines, values, strict=True)
            if not value
        ]
    if bad:
        more = f" and {len(bad) - SHOWN} more" if len(bad) > SHOWN else ""
        raise DataError(f"{path}: {'; '.join(bad[:SHOWN])}{more}; correct these cells")
    own = names[header.index(label)]
    marks = _real(own, lines, label, path) if real else _whole(own, lines, label, path)
    known = () if real else np.unique(marks)
    sites = None if site is None else np.array(names[header.index(site)])
    return Dataset(
        name=path.stem,
        train=(narrow(rows, path), marks if real else encode(marks, known, path)),
        test=None,
        classes=tuple(str(value) for value in known),
        shape=(len(columns),),
        sites=sites,
        files=(path,),
        names=tuple(header[k] for k in columns),
        places=() if sites is None else tuple(map(str, np.unique(sites))),
    )


def chosen(
    path: Path, header: list[str], label: str, site: str | None, features: Sequence[str] | None
) -> list[int]:
    """Where the features are in the header, in their order."""
    apart = [label] if site is None else [label, site]
    for name in [*apart, *(features or ())]:
        if name not in header:
            raise DataError(f"{path}: no column {name!r}; there are {', '.join(header)}")
    if features is not None and (twice := {*features} & {*apart}):
        raise DataError(f"{path}: {min(twice)!r} cannot be a feature too; leave it out of features")
    names = [name for name in header if name not in apart] if features is None else features
    if not names:
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
    for number, cells in lines[1:]:
        if len(cells) != len(header):
            raise DataError(
                f"{path}, row {number}: {len(cells)} cells under {len(header)} columns; "
                "correct the row"
            )
    return lines[1:], header


def _float(text: str) -> float:
    if "_" in text:  # "1_0" is a number to Python alone
        raise ValueError(text)
    return float(text)


def _number(row: int, cell: str, column: str, bad: list[str]) -> float:
    try:
        value = _float(cell)
    except ValueError:
        value = math.nan
    if not abs(value) <= LARGEST:
        bad.append(f"row {row}, column {column!r}: {cell!r} is not a finite number")
    return value


def _whole(names: list[str], lines: list[tuple[int, list[str]]], label: str, path: Path) -> NDArray:
    """Turn labels into whole numbers where all are numbers; else keep them as names."""
    try:
        values = [_float(name) for name in names]
    except ValueError:
        return np.array(names)
    for (number, _), value in zip(lines, values, strict=True):
        if not (value.is_integer() and abs(value) < 2**53):
            raise DataError(
                f"{path}, row {number}, column {label!r}: label {value} is not a whole number; "
                "label by whole numbers or names, or read it as real (the problem regression does)"
            )
    return np.array(values).astype(np.int64)


def _real(
    names: list[str], lines: list[tuple[int, list[str]]], label: str, path: Path
) -> NDArray[np.float32]:
    """Targets to regress on."""
    bad: list[str] = []
    values = [_number(row, name, label, bad) for (row, _), name in zip(lines, names, strict=True)]
    if bad:
        more = f" and {len(bad) - SHOWN} more" if len(bad) > SHOWN else ""
        raise DataError(f"{path}: {'; '.join(bad[:SHOWN])}{more}; correct these targets")
    return np.array(values, np.float32)
