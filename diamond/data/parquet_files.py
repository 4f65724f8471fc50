"""Reader of the user's own Parquet tables."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import hashed_text
from .csv_files import feature_columns
from .dataset import DataError, Dataset, MissingCells, build_dataset
from .missing_values import (
    LABEL_REMEDY,
    REMEDY,
    MissingValues,
    complete_rows,
    fill_sites,
    parse_treatment,
)


def parquet(
    path: str | Path,
    label: str,
    site: str | None = None,
    real: bool = False,
    features: Sequence[str] | None = None,
    hashed: int | None = None,
    text: str = "text",
    missing_values: MissingValues = "refuse",
) -> Dataset:
    """Read a Parquet table; arguments and result are as in `csv`. Needs pyarrow."""
    path, treatment = Path(path), parse_treatment(missing_values)
    try:
        from pyarrow import ArrowException, parquet
    except ImportError:
        raise DataError(
            f"{path}: reading Parquet needs pyarrow; pip install 'diamond-bilevel[parquet]', or "
            f"write the table as csv"
        ) from None
    try:
        table = parquet.read_table(path)
    except (ArrowException, OSError) as cause:
        reason = str(cause).splitlines()[0]
        raise DataError(f"{path}: not a readable Parquet table ({reason}); correct it") from cause
    header = list(table.column_names)
    columns = feature_columns(
        path, header, label, site, features=features, text=text if hashed else None
    )
    if not table.num_rows:
        raise DataError(f"{path}: no rows; give one or more")
    names = [header[k] for k in columns]
    _refuse_texts(path, table, names)
    rows = np.zeros((table.num_rows, len(columns)))
    for position, name in enumerate(names):
        rows[:, position] = _numbers(path, table, name, treatment.keeps or treatment.drops)
    missing: tuple[MissingCells, ...] = ()
    if treatment.drops:
        target = np.where(_missing_mask(table, label), np.nan, 0.0)[:, None]
        sites = None if site is None else _labels(path, table, site).astype(str)
        is_complete, missing = complete_rows(
            np.hstack([rows, target]), [*names, label], sites, path
        )
        table, rows = table.filter(is_complete), rows[is_complete]
    if hashed:
        rows = np.hstack([rows, hashed_text.features(_texts(path, table, text), hashed)])
        names += hashed_text.names(text, hashed)
    _column(path, table, label, LABEL_REMEDY)
    labels = _numbers(path, table, label) if real else _labels(path, table, label)
    sites = None if site is None else _labels(path, table, site).astype(str)
    dataset = build_dataset(
        path, rows, labels, names, real=real, sites=sites, missing=treatment.keeps
    )
    return fill_sites(replace(dataset, missing=missing), missing_values)


def _refuse_texts(path: Path, table: Any, names: Sequence[str]) -> None:
    """Refuse all columns that are not numeric at once."""
    kinds = {name: table.column(name).type for name in names}
    text_columns = {name: kind for name, kind in kinds.items() if not _is_number(kind)}
    if text_columns:
        listed = ", ".join(f"{name!r} ({kind})" for name, kind in text_columns.items())
        others = ", ".join(f'"{name}"' for name in names if name not in text_columns)
        raise DataError(
            f"{path}, column {listed}: no numbers; name the columns to use, as in features = "
            f"[{others}], or make features of the words of a column, as in hashed = 64, text = "
            f'"{next(iter(text_columns))}"'
        )


def _is_number(kind: Any) -> bool:
    from pyarrow import types

    tests = types.is_integer, types.is_floating, types.is_boolean
    return any(test(kind) for test in tests)


def _missing_mask(table: Any, name: str) -> NDArray[Any]:
    """Return which rows have no value in a column."""
    return np.array(table.column(name).is_null(nan_is_null=True).to_numpy())


def _texts(path: Path, table: Any, name: str) -> list[str]:
    texts = _column(path, table, name)
    if not all(isinstance(value, str) for value in texts):
        raise DataError(f"{path}, column {name!r}: {table.column(name).type} is no text")
    return list(texts)


def _column(path: Path, table: Any, name: str, remedy: str = "") -> NDArray[Any]:
    """Return the column; refuse missing values."""
    gaps = np.flatnonzero(_missing_mask(table, name))
    if len(gaps):
        location = f"{path}, row {gaps[0] + 1}, column {name!r}: missing"
        raise DataError(f"{location}; {remedy or 'give a value, or drop the row'}")
    values: NDArray[Any] = table.column(name).to_numpy()
    return values


def _numbers(path: Path, table: Any, name: str, missing: bool = False) -> NDArray[Any]:
    """Return the column as finite numbers; if `missing` is true, NaN for missing values."""
    if not _is_number(table.column(name).type):
        raise DataError(f"{path}, column {name!r}: {table.column(name).type} is no number")
    if missing:
        gaps = _missing_mask(table, name)
        values = np.where(gaps, np.nan, table.column(name).to_numpy().astype(float))
    else:
        values = _column(path, table, name, REMEDY)
    wrong = np.flatnonzero(np.isinf(values.astype(float)))
    if len(wrong):
        raise DataError(
            f"{path}, row {wrong[0] + 1}, column {name!r}: {values[wrong[0]]} is not a finite "
            f"number; correct or drop the row"
        )
    return values


def _labels(path: Path, table: Any, name: str) -> NDArray[Any]:
    """Return labels as integers or names."""
    labels = _column(path, table, name)
    if labels.dtype.kind == "f":
        not_whole = np.flatnonzero(labels != np.round(labels))
        if len(not_whole):
            raise DataError(
                f"{path}, row {not_whole[0] + 1}, column {name!r}: label {labels[not_whole[0]]} is "
                "not a whole number; label by whole numbers or names, or read it as real"
            )
        return labels.astype(np.int64)
    return labels.astype(np.int64) if labels.dtype.kind in "biu" else labels.astype(str)
