"""A table of any file format, and the data set of its rows."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..core.suggestions import did_you_mean
from .dataset import DataError, Dataset, MissingCells, build_dataset, parse_labels, raise_for_cells
from .missing_values import (
    LABEL_REMEDY,
    REMEDY,
    CellTreatment,
    MissingValues,
    complete_rows,
    fill_sites,
    is_missing,
    parse_treatment,
)
from .table_columns import (
    Categories,
    Cells,
    Column,
    as_texts,
    check_levels,
    feature_names,
    find_column,
    read_cells,
)

NO_LEVELS: Mapping[str, Sequence[str]] = {}


@dataclass(frozen=True)
class DataTable:
    """Rows of a file by column: `numbers` are those of the rows in messages."""

    path: Path
    header: list[str]
    numbers: Sequence[int]
    column: Callable[[str], Cells]


@dataclass(frozen=True)
class TableOptions:
    """Meaning of the columns of a table, as in `csv`."""

    label: str = "label"
    site: str | None = None
    real: bool = False
    features: Sequence[str] | None = None
    hashed: int | None = None
    text: str = "text"
    missing_values: MissingValues = "refuse"
    categories: Categories = "refuse"
    levels: Mapping[str, Sequence[str]] | tuple[tuple[str, tuple[str, ...]], ...] = ()
    columns: Sequence[Column] | None = None


def read_dataset(table: DataTable, options: TableOptions) -> Dataset:
    """Return the data set of a table."""
    path, label, treatment = table.path, options.label, parse_treatment(options.missing_values)
    columns = tuple(options.columns or find_columns(table, options))
    sites = None if options.site is None else np.array(as_texts(table.column(options.site)))
    if sites is not None:
        _refuse_empty(table, sites == "", str(options.site), "name the site")
    rows = read_features(table, columns, treatment)
    names, targets = feature_names(columns), table.column(label)
    # "none" may be a class, but it is not a number.
    is_empty = (
        np.isnan(targets)
        if isinstance(targets, np.ndarray)
        else np.array([is_missing(cell) if options.real else not cell for cell in targets])
    )
    missing: tuple[MissingCells, ...] = ()
    indices = np.arange(len(rows))
    if treatment.drops:
        target = np.where(is_empty, np.nan, 0.0)[:, None]
        owners = [*(column.name for column in columns for _ in column.features), label]
        is_complete, missing = complete_rows(np.hstack([rows, target]), owners, sites, path)
        indices = np.flatnonzero(is_complete)
    else:
        _refuse_empty(table, is_empty, label, LABEL_REMEDY)
    numbers = [table.numbers[i] for i in indices.tolist()]
    values = targets[indices] if isinstance(targets, np.ndarray) else [targets[i] for i in indices]
    dataset = build_dataset(
        path,
        rows[indices],
        parse_labels(values, numbers, label, path, real=options.real),
        names,
        real=options.real,
        sites=None if sites is None else sites[indices],
        missing=treatment.keeps,
    )
    dataset = replace(dataset, missing=missing, columns=columns)
    return fill_sites(dataset, options.missing_values)


def find_columns(table: DataTable, options: TableOptions) -> list[Column]:
    """Find the kinds of the feature columns; refuse text, with its remedies."""
    names, levels = _feature_columns(table, options), dict(options.levels)
    check_levels(levels, names)
    columns, texts = [], {}
    for name in names:
        cells = table.column(name)
        try:
            column = find_column(name, cells, levels, options.categories)
        except DataError as cause:
            raise DataError(f"{table.path}: {cause}") from None
        if column is None:
            texts[name] = next(cell for cell in as_texts(cells) if not is_missing(cell))
        else:
            columns.append(column)
    if texts:
        _refuse_texts(table.path, texts, [column.name for column in columns])
    return columns + ([Column(options.text, "text", (), options.hashed)] if options.hashed else [])


def read_features(
    table: DataTable,
    columns: Sequence[Column],
    treatment: CellTreatment,
    missing_remedy: str = REMEDY,
) -> NDArray[np.float64]:
    """Return the features of the columns, NaN for allowed missing cells; refuse all bad cells."""
    parts, bad = [np.zeros((len(table.numbers), 0))], []
    for column in columns:
        if column.name not in table.header:
            suggestion = did_you_mean(column.name, table.header)
            raise DataError(f"{table.path}: no column {column.name!r}; {suggestion}")
        values, bad_cells = read_cells(column, table.column(column.name))
        parts.append(values)
        bad += [
            (table.numbers[cell.row], f"column {column.name!r}: {cell.reason}", cell.is_missing)
            for cell in bad_cells
            if not (cell.is_missing and (treatment.keeps or treatment.drops))
        ]
    bad.sort(key=lambda entry: entry[0])
    kinds = {missing for *_, missing in bad}
    correct = "correct these cells, with a point in decimal numbers"
    remedy = f"{correct}; of missing values, {missing_remedy}" if len(kinds) > 1 else correct
    cells = [f"row {number}, {description}" for number, description, _ in bad]
    raise_for_cells(table.path, cells, missing_remedy if kinds == {True} else remedy)
    return np.hstack(parts)


def _refuse_empty(table: DataTable, is_empty: NDArray[np.bool_], name: str, remedy: str) -> None:
    """Refuse rows without a value of a column."""
    rows = [table.numbers[i] for i in np.flatnonzero(is_empty).tolist()]
    raise_for_cells(table.path, [f"row {n}, column {name!r}: empty" for n in rows], remedy)


def _refuse_texts(path: Path, texts: dict[str, str], others: Sequence[str]) -> None:
    """Refuse text columns, and explain how to leave them out or use them."""
    listed = " and ".join(f"{name!r} ({example!r}, ...)" for name, example in texts.items())
    is_single, first = len(texts) == 1, next(iter(texts))
    names = ", ".join(f'"{name}"' for name in others)
    kind = "column" if is_single else "columns"
    raise DataError(
        f"{path}: {kind} {listed} {'holds' if is_single else 'hold'} text, not numbers; name the "
        f"columns to use, as in features = [{names}], make one feature of each level, as in levels "
        f'= {{{first} = ["{texts[first]}", ...]}} or categories = "one_hot", or make features of '
        f'the words of a column, as in hashed = 64, text = "{first}"'
    )


def _feature_columns(table: DataTable, options: TableOptions) -> list[str]:
    """Return the names of the feature columns in their order, without the text column."""
    path, header, features = table.path, table.header, options.features
    text = options.text if options.hashed else None
    reserved = [options.label, *(name for name in (options.site, text) if name is not None)]
    for name in [*reserved, *(features or ())]:
        if name not in header:
            raise DataError(f"{path}: no column {name!r}; {did_you_mean(name, header)}")
    if features is not None and (overlap := {*features} & {*reserved}):
        raise DataError(
            f"{path}: {min(overlap)!r} cannot be a feature too; leave it out of features"
        )
    names = [name for name in header if name not in reserved] if features is None else features
    if not names and text is None:
        raise DataError(f"{path}: no feature column besides {options.label!r}; add one")
    return list(names)
