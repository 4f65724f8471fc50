"""Columns of a table as features: numbers, booleans, dates, texts, and levels by one-hot coding."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from . import hashed_text
from .dataset import DataError, parse_numbers
from .missing_values import is_missing

Kind = Literal["number", "boolean", "date", "levels", "text"]
Categories = Literal["refuse", "one_hot"]
Cells = list[str] | NDArray[np.float64]  # texts, or numbers with NaN for missing cells
BOOLEANS = {"false": 0.0, "no": 0.0, "0": 0.0, "true": 1.0, "yes": 1.0, "1": 1.0}
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
SECONDS_OF_DAY = 86400
MOST_LEVELS = 50  # of a column whose levels are not declared: more look like names or notes
DESCRIPTIONS: dict[Kind, str] = {
    "number": "a finite number",
    "boolean": "true, false, yes or no",
    "date": "a date such as 2024-05-31",
}


@dataclass(frozen=True)
class Column:
    """Column of a table, with the features that its cells become.

    A "number" is one feature, a "boolean" 0 or 1, a "date" the number of days since 1970. "levels"
    are one-hot coded: one feature per level, 1 for the level of the row. The words of a "text" are
    hashed into `width` features.
    """

    # How a file of a preparation is read; a plain dictionary, since readers need no pydantic.
    __pydantic_config__: ClassVar[dict[str, Any]] = {"strict": True, "extra": "forbid"}

    name: str
    kind: Kind = "number"
    levels: tuple[str, ...] = ()
    width: int = 1

    @property
    def features(self) -> tuple[str, ...]:
        """Return the names of the features."""
        if self.kind == "levels":
            return tuple(f"{self.name}={level}" for level in self.levels)
        return hashed_text.names(self.name, self.width) if self.kind == "text" else (self.name,)


class BadCell(NamedTuple):
    """Cell that cannot be used: its row, and the reason."""

    row: int
    reason: str
    is_missing: bool


def feature_names(columns: Sequence[Column]) -> tuple[str, ...]:
    """Return the names of the features of all columns."""
    return tuple(name for column in columns for name in column.features)


def read_cells(column: Column, cells: Cells) -> tuple[NDArray[np.float64], list[BadCell]]:
    """Return the features (rows, width) of the cells, NaN where there is no value, and why."""
    if isinstance(cells, np.ndarray) and column.kind in ("number", "boolean"):
        odd = ~np.isin(cells, (0.0, 1.0)) if column.kind == "boolean" else np.isinf(cells)
        reason = lambda value: f"{value:g} is not {DESCRIPTIONS[column.kind]}"
        bad = [
            BadCell(int(i), reason(cells[i]), False) for i in np.flatnonzero(odd & (cells == cells))
        ]
        missing = [
            BadCell(int(i), "a missing value", True) for i in np.flatnonzero(np.isnan(cells))
        ]
        return cells[:, None], [*bad, *missing]
    texts = as_texts(cells)
    if column.kind == "text":
        if isinstance(cells, np.ndarray):
            return np.zeros((len(cells), column.width)), [BadCell(0, "a number is no text", False)]
        return hashed_text.features(texts, column.width).astype(float), []
    if column.kind == "levels":
        codes = {level: row for level, row in zip(column.levels, np.eye(len(column.levels)))}
        nothing = np.full(len(column.levels), np.nan)
        values = np.array([codes.get(cell, nothing) for cell in texts])
        expected = f"none of the levels {', '.join(column.levels)}"
    else:
        values = PARSERS[column.kind](texts)[:, None]
        expected = f"not {DESCRIPTIONS[column.kind]}"
    return values, [
        BadCell(i, f"{texts[i]!r} is a missing value", True)
        if is_missing(texts[i])
        else BadCell(i, f"{texts[i]!r} is {expected}", False)
        for i in map(int, np.flatnonzero(np.isnan(values[:, 0])))
    ]


def find_column(
    name: str, cells: Cells, levels: Mapping[str, Sequence[str]], categories: Categories
) -> Column | None:
    """Find what the cells of a column are; None if they are text that is no feature."""
    if name in levels:
        return Column(name, "levels", tuple(levels[name]))
    if isinstance(cells, np.ndarray):
        return Column(name)
    known = [cell for cell in cells if not is_missing(cell)]
    others = [known[i] for i in np.flatnonzero(np.isnan(parse_numbers(known)))]
    if 2 * len(others) <= len(known) or any(map(_is_odd_number, others)):
        return Column(name)  # perhaps with a few wrong cells
    kinds: tuple[Kind, ...] = ("boolean", "date")
    for kind in kinds:
        if not np.isnan(PARSERS[kind](known)).any():
            return Column(name, kind)
    found = tuple(sorted({*known}))
    if categories == "refuse":
        return None
    if len(found) > MOST_LEVELS:
        raise DataError(
            f"column {name!r} has {len(found)} different texts ({found[0]!r}, ...), which are "
            f"hardly levels; leave it out of features, or declare its levels"
        )
    return Column(name, "levels", found)


def unite_columns(
    columns_of_files: Sequence[Sequence[Column]],
    rows: Sequence[NDArray[Any]],
    paths: Sequence[Path],
) -> tuple[Column, ...] | None:
    """Return the columns of all files with the levels of all; None if the files' names differ.

    A column without any value in a file may be of any kind there.
    """
    first = columns_of_files[0]
    if any([c.name for c in columns] != [c.name for c in first] for columns in columns_of_files):
        return None
    united = []
    for k in range(len(first)):
        known = [
            (path, columns[k])
            for path, columns, features in zip(paths, columns_of_files, rows)
            if not np.isnan(features[:, len(feature_names(columns[:k]))]).all()
        ]
        column = known[0][1] if known else first[k]
        for path, other in known[1:]:
            column = _unite(column, other, path)
        united.append(column)
    return tuple(united)


def _unite(column: Column, other: Column, path: Path) -> Column:
    """Return a column of both kinds, with the levels of both."""
    if {column.kind, other.kind} == {"number", "boolean"}:
        return replace(column, kind="boolean")
    if column.kind != other.kind:
        raise DataError(
            f"{path}: column {column.name!r} holds {_plural(other)}, but {_plural(column)} in "
            f"other files; give every file the same, or declare its levels"
        )
    levels = (*column.levels, *(level for level in other.levels if level not in column.levels))
    return replace(column, levels=tuple(sorted(levels)) if levels != column.levels else levels)


def _plural(column: Column) -> str:
    return "texts" if column.kind == "levels" else f"{column.kind}s"


def describe_united_levels(
    columns: Sequence[Column], declared: Mapping[str, Sequence[str]]
) -> list[str]:
    """Describe the columns whose levels were united over the sites, which discloses them."""
    united = [c for c in columns if c.kind == "levels" and c.name not in declared]
    if not united:
        return []
    tables = ", ".join(f"{c.name} = {list(c.levels)}".replace("'", '"') for c in united)
    return [
        f"the levels of {' and '.join(c.name for c in united)} were united over the sites, so that "
        f"every site learns all of them; to avoid this, declare them: levels = {{{tables}}}"
    ]


def check_levels(levels: Mapping[str, Sequence[str]], names: Sequence[str]) -> None:
    """Refuse declared levels that are empty or repeated, or of a column that is no feature."""
    for name, values in levels.items():
        if name not in names:
            raise DataError(f"levels: no feature column {name!r}; there are {', '.join(names)}")
        if not values or len({*values}) < len(values):
            raise DataError(f"levels: {name} has no level, or one twice; name every level once")


def as_texts(cells: Cells) -> list[str]:
    """Return cells as texts, whole numbers without a point, and "" for missing ones."""
    if isinstance(cells, list):
        return cells
    return ["" if v != v else str(int(v)) if v.is_integer() else str(v) for v in cells.tolist()]


def as_cells(values: Sequence[Any] | NDArray[Any]) -> Cells:
    """Return values of Python, numpy or pandas as cells."""
    array = np.asarray(values)
    if array.ndim != 1:
        raise DataError(f"a column of shape {array.shape}; give one value a row")
    if array.dtype.kind in "biuf":
        return array.astype(float)
    if array.dtype.kind == "M":
        array = np.datetime_as_string(array)
    return ["" if value is None else str(value).strip() for value in array.tolist()]


def _is_odd_number(cell: str) -> bool:
    """Return whether a cell was meant to be a number: 1,5 or 1_5 or 1e99."""
    try:
        float(cell.replace(",", "."))
    except ValueError:
        return False
    return True


def _parse_date(cell: str) -> float:
    """Return the days since 1970 of a date or time in ISO 8601, without a zone in UTC."""
    try:
        moment = datetime.fromisoformat(cell)
    except ValueError:
        return math.nan
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return (moment - EPOCH).total_seconds() / SECONDS_OF_DAY


PARSERS: dict[Kind, Callable[[Sequence[str]], NDArray[np.float64]]] = {
    "number": parse_numbers,
    "boolean": lambda cells: np.array([BOOLEANS.get(c.casefold(), math.nan) for c in cells]),
    "date": lambda cells: np.array([_parse_date(cell) for cell in cells]),
}
