"""Reader of the user's own Parquet tables."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import hashed_text
from .dataset import DataError, Dataset, tabulated
from .tables import chosen


def parquet(
    path: str | Path,
    label: str,
    site: str | None = None,
    real: bool = False,
    features: Sequence[str] | None = None,
    hashed: int | None = None,
    text: str = "text",
) -> Dataset:
    """Read a Parquet table as `csv` reads a csv one; needs pyarrow."""
    path = Path(path)
    try:
        from pyarrow import ArrowException, parquet
    except ImportError:
        raise DataError(
            f"{path}: reading Parquet needs pyarrow; pip install pyarrow, or write the table as csv"
        ) from None
    try:
        table = parquet.read_table(path)
    except (ArrowException, OSError) as cause:
        said = str(cause).splitlines()[0]
        raise DataError(f"{path}: not a readable Parquet table ({said}); correct it") from cause
    header = list(table.column_names)
    columns = chosen(path, header, label, site, features, text if hashed else None)
    if not table.num_rows:
        raise DataError(f"{path}: no rows; give one or more")
    rows = np.zeros((table.num_rows, len(columns)))
    for place, k in enumerate(columns):
        rows[:, place] = _numbers(path, table, header[k])
    names = [header[k] for k in columns]
    if hashed:
        rows = np.hstack([rows, hashed_text.features(_texts(path, table, text), hashed)])
        names += hashed_text.names(text, hashed)
    marks = _numbers(path, table, label) if real else _labels(path, table, label)
    sites = None if site is None else _labels(path, table, site).astype(str)
    return tabulated(path, rows, marks, names, real, sites)


def _texts(path: Path, table: Any, name: str) -> list[str]:
    found = _column(path, table, name)
    if not all(isinstance(value, str) for value in found):
        raise DataError(f"{path}, column {name!r}: {table.column(name).type} is no text")
    return list(found)


def _column(path: Path, table: Any, name: str) -> NDArray:
    """The column without missing values."""
    column = table.column(name)
    if column.null_count:
        row = next(i for i, value in enumerate(column) if not value.is_valid)
        raise DataError(f"{path}, row {row + 1}, column {name!r}: missing; correct or drop the row")
    found: NDArray = column.to_numpy()
    return found


def _numbers(path: Path, table: Any, name: str) -> NDArray:
    found = _column(path, table, name)
    if found.dtype.kind not in "biuf":
        raise DataError(
            f"{path}, column {name!r}: {table.column(name).type} is no number; convert it, or name "
            f"the columns to use by features"
        )
    wrong = np.flatnonzero(~np.isfinite(found.astype(float)))
    if len(wrong):
        raise DataError(
            f"{path}, row {wrong[0] + 1}, column {name!r}: {found[wrong[0]]} is not a finite "
            f"number; correct or drop the row"
        )
    return found


def _labels(path: Path, table: Any, name: str) -> NDArray:
    """Whole numbers or names."""
    found = _column(path, table, name)
    if found.dtype.kind == "f":
        odd = np.flatnonzero(found != np.round(found))
        if len(odd):
            raise DataError(
                f"{path}, row {odd[0] + 1}, column {name!r}: label {found[odd[0]]} is not a whole "
                "number; label by whole numbers or names, or read it as real"
            )
        return found.astype(np.int64)
    return found.astype(np.int64) if found.dtype.kind in "biu" else found.astype(str)
