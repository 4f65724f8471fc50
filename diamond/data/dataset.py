"""Data set that every reader returns, and the error that every reader raises."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from .table_columns import Column

LabelledRows = tuple[NDArray[np.float32], NDArray[Any]]
LARGEST = float(np.finfo(np.float32).max)
LONGEST = 40  # characters of a cell that is parsed together with others, in equal space
MOST_SHOWN = 10  # bad cells listed in a message; the others are counted


class DataError(ValueError):
    """Error about unusable data; the message names the file, the cause and the remedy."""


class MissingCells(NamedTuple):
    """Counts of a site's missing cells by column, and of the affected rows."""

    site: str
    cells: dict[str, int]
    rows: int


@dataclass(frozen=True, eq=False)
class Dataset:
    """Labelled rows: features (rows, width) float32, labels (rows,) int32 in 0..q-1.

    `classes[k]` is the name of label k; it is empty if the labels are real-valued targets, float32.
    `shape` is the shape of one row before flattening. `names` are the names of the features, if a
    table has a header; `sites` is the site of each training row, if a table has sites; `places` are
    the sites in the order of the agents; `files` are the files read; `missing` counts the cells
    that were filled or whose rows were dropped; `columns` are the columns of the features.
    """

    name: str
    train: LabelledRows
    test: LabelledRows | None
    classes: tuple[str, ...]
    shape: tuple[int, ...]
    sites: NDArray[np.str_] | None = None
    files: tuple[Path, ...] = ()
    names: tuple[str, ...] = ()
    places: tuple[str, ...] = ()
    missing: tuple[MissingCells, ...] = ()
    columns: tuple["Column", ...] = ()

    @property
    def owners(self) -> tuple[str, ...]:
        """Return the name of the column of each feature, if columns have names."""
        owners = tuple(column.name for column in self.columns for _ in column.features)
        return owners or self.names


def encode(
    labels: NDArray[Any], classes: Sequence[Any] | NDArray[Any], path: Path
) -> NDArray[np.int32]:
    """Encode the labels by their index in the ascending `classes`; refuse any other label."""
    order = np.asarray(classes)
    codes = np.searchsorted(order, labels).clip(max=len(order) - 1)
    unknown = np.flatnonzero(order[codes] != labels)
    if unknown.size:
        raise DataError(
            f"{path}, row {unknown[0] + 1}: label {labels[unknown[0]].item()!r} is none of "
            f"{', '.join(str(value) for value in order[:20])}; correct the label"
        )
    return codes.astype(np.int32)


def to_float32(
    values: NDArray[Any], path: Path, missing: bool = False, remedy: str = "correct or drop the row"
) -> NDArray[np.float32]:
    """Cast to float32; refuse the first value that is not finite.

    If `missing` is true, NaN is a missing value and is kept.
    """
    with np.errstate(over="ignore"):
        single = values.astype(np.float32)
    bad_cells = np.argwhere(~np.isfinite(single) & ~(missing & np.isnan(single)))
    if len(bad_cells):
        row, column = bad_cells[0][0], bad_cells[0][1:]
        raise DataError(
            f"{path}, row {row + 1}, column {', '.join(str(k + 1) for k in column)}: "
            f"{values[tuple(bad_cells[0])]} is not finite in float32; {remedy}"
        )
    return single


def build_dataset(
    path: Path,
    rows: NDArray[Any],
    labels: NDArray[Any],
    names: Sequence[str],
    *,
    real: bool,
    sites: NDArray[np.str_] | None = None,
    missing: bool = False,
) -> Dataset:
    """Build the data set of a table: features by `names`, labels as by `parse_labels`.

    If `missing` is true, features may be missing, as NaN.
    """
    values = () if real else np.unique(labels)
    return Dataset(
        name=path.stem,
        train=(
            to_float32(rows, path, missing),
            to_float32(labels, path) if real else encode(labels, values, path),
        ),
        test=None,
        classes=tuple(str(value) for value in values),
        shape=(len(names),),
        sites=sites,
        files=(path,),
        names=tuple(names),
        places=() if sites is None else tuple(map(str, np.unique(sites))),
    )


def parse_labels(
    cells: Sequence[str] | NDArray[np.float64],
    lines: Sequence[int],
    label: str,
    path: Path,
    *,
    real: bool,
) -> NDArray[Any]:
    """Parse labels: integers if all are numbers, else names; `real` targets are floats."""
    if real:
        bad: list[str] = []
        targets = [parse_finite(n, str(cell), label, bad) for n, cell in zip(lines, cells)]
        raise_for_cells(path, bad, "correct these targets")
        return np.array(targets, np.float32)
    try:
        values = [_float(cell) if isinstance(cell, str) else float(cell) for cell in cells]
    except ValueError:
        return np.array(cells)
    for n, value in zip(lines, values, strict=True):
        if not (value.is_integer() and abs(value) < 2**53):
            raise DataError(
                f"{path}, row {n}, column {label!r}: label {value} is not a whole number; "
                "label by whole numbers or names, or read it as real (the problem regression does)"
            )
    return np.array(values).astype(np.int64)


def parse_finite(row: int, cell: str, column: str, bad: list[str]) -> float:
    """Parse the number in a cell; if it is not finite in float32, add the cell to `bad`."""
    value = parse_number(cell)
    if math.isnan(value):
        bad.append(f"row {row}, column {column!r}: {cell!r} is not a finite number")
    return value


def parse_number(cell: str) -> float:
    """Parse the number in a cell; NaN if there is none that is finite in float32."""
    try:
        value = _float(cell)
    except ValueError:
        return math.nan
    return value if abs(value) <= LARGEST else math.nan


def parse_numbers(cells: Sequence[str]) -> NDArray[np.float64]:
    """Parse the numbers in cells; NaN where there is none that is finite in float32."""
    try:
        if any("_" in cell or len(cell) > LONGEST for cell in cells):
            raise ValueError
        values = np.array(cells, str).astype(float)
    except ValueError:
        return np.array([parse_number(cell) for cell in cells])
    return np.where(np.abs(values) <= LARGEST, values, math.nan)


def raise_for_cells(path: Path, bad: Sequence[str], remedy: str) -> None:
    """Raise with the first of the `bad` cells, if any."""
    if bad:
        more = f" and {len(bad) - MOST_SHOWN} more" if len(bad) > MOST_SHOWN else ""
        raise DataError(f"{path}: {'; '.join(bad[:MOST_SHOWN])}{more}; {remedy}")


def _float(text: str) -> float:
    if "_" in text:  # only Python accepts "1_0" as a number
        raise ValueError(text)
    return float(text)
