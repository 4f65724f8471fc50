"""Missing values of a table: refuse them, drop their rows, or fill them."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .dataset import LARGEST, DataError, Dataset, MissingCells

MissingValues = Literal["refuse", "keep", "drop", "mean"] | float | Mapping[str, float]
# In any case; "<NA>" and "NaT" are those of pandas.
MARKS = frozenset(["", "na", "n/a", "#n/a", "<na>", "nan", "nat", "null", "none", "?", "."])
REMEDY = (
    'drop these rows by missing_values = "drop", or fill the cells by missing_values = "mean" or '
    "a number"
)
LABEL_REMEDY = 'give a label, or drop these rows by missing_values = "drop"'


class CellTreatment(NamedTuple):
    """Treatment of missing cells by a reader; kept cells are NaN, to be filled later."""

    keeps: bool = False
    drops: bool = False


def parse_treatment(treatment: MissingValues) -> CellTreatment:
    """Convert the user's treatment into the treatment by a reader."""
    numbers = treatment.values() if isinstance(treatment, Mapping) else [treatment]
    is_keyword = isinstance(treatment, str) and treatment in ("refuse", "keep", "drop", "mean")
    if not is_keyword and not all(_is_number(value) for value in numbers):
        raise DataError(
            f"missing_values = {treatment!r}; give 'refuse', 'drop', 'mean', a number, or a number "
            "for each column by its name, as in {'age': 50.0}"
        )
    return CellTreatment(treatment not in ("refuse", "drop"), treatment == "drop")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= LARGEST


def is_missing(cell: str) -> bool:
    """Return whether a text cell stands for a missing value."""
    return cell.strip().casefold() in MARKS


def count_missing(
    features: Sequence[NDArray[Any]], names: Sequence[str], site: str
) -> MissingCells:
    """Count the missing cells of one site over all parts of its rows."""
    gaps = np.concatenate([np.isnan(part) for part in features])
    cells = {
        _column_name(names, int(k)): int(gaps[:, k].sum()) for k in np.flatnonzero(gaps.any(0))
    }
    return MissingCells(site, cells, int(gaps.any(1).sum()))


def complete_rows(
    rows: NDArray[Any], names: Sequence[str], sites: NDArray[np.str_] | None, path: Path
) -> tuple[NDArray[np.bool_], tuple[MissingCells, ...]]:
    """Return which rows are complete, and the missing cells of each site of a table."""
    if sites is None:
        sites = np.full(len(rows), path.stem)
    is_complete, missing = ~np.isnan(rows).any(1), []
    for site in map(str, np.unique(sites)):
        missing.append(count_missing([rows[sites == site]], names, site))
        if not is_complete[sites == site].any():
            raise DataError(
                f"{path}: every row of {site} lacks some value, so that none would be left; fill "
                f'cells by missing_values = "mean" or a number, or use fewer columns by features'
            )
    return is_complete, tuple(missing)


def fill_missing(
    parts: Sequence[NDArray[Any]], names: Sequence[str], treatment: MissingValues, site: str
) -> tuple[list[NDArray[np.float32]], NDArray[np.float64]]:
    """Fill every missing cell in the parts of one site's rows, training rows first.

    "mean" is the mean of the feature over the site's own training rows, so that no site learns
    anything about another. Returns the parts, and the values that they are filled by.
    """
    check_names(treatment, names)
    values = np.full(parts[0].shape[1], np.nan)
    if isinstance(treatment, Mapping):
        values = np.array([treatment.get(name, np.nan) for name in names], float)
    elif treatment == "mean":
        is_known = ~np.isnan(parts[0])
        sums = np.where(is_known, parts[0], 0).sum(0, dtype=np.float64)
        values = np.where(is_known.any(0), sums / np.maximum(is_known.sum(0), 1), np.nan)
    elif not isinstance(treatment, str):
        values[:] = treatment
    for k in np.flatnonzero(np.isnan(values)):
        if any(np.isnan(part[:, k]).any() for part in parts):
            name = _column_name(names, int(k))
            problem = (
                f"no training row of {site} has a value of {name!r}, so there is no mean to fill by"
                if treatment == "mean"
                else f"missing_values has no number for {name!r}, which {site} lacks in some rows"
            )
            raise DataError(
                f"{problem}; give one, as in missing_values = {{{name} = 0.0}}, or leave the "
                f"column out of features"
            )
    return [fill(part, values) for part in parts], values


def fill(rows: NDArray[Any], values: NDArray[np.float64]) -> NDArray[np.float32]:
    """Fill the missing cells of every feature by its value."""
    return np.where(np.isnan(rows), values, rows).astype(np.float32)


def check_names(treatment: MissingValues, names: Sequence[str]) -> None:
    """Refuse a number for an unused column."""
    for name in treatment if isinstance(treatment, Mapping) else ():
        if name not in names:
            available = ", ".join(names) or "none"
            raise DataError(f"missing_values: no feature {name!r}; there are {available}")


def fill_sites(dataset: Dataset, treatment: MissingValues) -> Dataset:
    """Fill and count the missing cells of each site of a data set."""
    if treatment in ("refuse", "keep", "drop"):
        return dataset
    rows, test = dataset.train[0].copy(), dataset.test
    if test is not None:
        (_, filled), _ = fill_missing([rows, test[0]], dataset.names, treatment, dataset.name)
        test = filled, test[1]
    counts = []
    for site in dataset.places or (dataset.name,):
        selected = slice(None) if dataset.sites is None else dataset.sites == site
        counts.append(count_missing([rows[selected]], dataset.owners, site))
        (rows[selected],), _ = fill_missing([rows[selected]], dataset.names, treatment, site)
    return replace(dataset, train=(rows, dataset.train[1]), test=test, missing=tuple(counts))


def describe_missing(missing: Sequence[MissingCells], treatment: MissingValues) -> list[str]:
    """Format as in "north: 3 cells of age and 1 of dose filled by a number"."""
    is_number = isinstance(treatment, int | float | Mapping)
    how = "a number" if is_number else "the mean of its training rows"
    descriptions, sites = [], dict.fromkeys(entry.site for entry in missing)
    for site in sites:
        counts_of_site = [
            entry for entry in missing if entry.site == site
        ]  # one per file of each part
        rows = sum(entry.rows for entry in counts_of_site)
        names = dict.fromkeys(name for entry in counts_of_site for name in entry.cells)
        cells = {name: sum(entry.cells.get(name, 0) for entry in counts_of_site) for name in names}
        columns = " and ".join(f"{n} of {name}" for name, n in cells.items())
        dropped = f"{rows} row{'s' * (rows != 1)} dropped for missing values ({columns})"
        if cells:
            description = (
                dropped if treatment == "drop" else f"missing values filled by {how}: {columns}"
            )
            descriptions.append(f"{site}: {description}")
    return descriptions


def _column_name(names: Sequence[str], k: int) -> str:
    return names[k] if names else f"column {k + 1}"
