"""Reader of the user's own csv tables."""

import math
from collections.abc import Sequence
from csv import Error, reader
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..core.suggestions import did_you_mean
from . import hashed_text
from .dataset import (
    DataError,
    Dataset,
    MissingCells,
    build_dataset,
    parse_labels,
    parse_number,
    raise_for_cells,
)
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

SEPARATORS = (",", ";", "\t")


def csv(
    path: str | Path,
    label: str,
    site: str | None = None,
    real: bool = False,
    features: Sequence[str] | None = None,
    hashed: int | None = None,
    text: str = "text",
    missing_values: MissingValues = "refuse",
) -> Dataset:
    """Read a csv table with a header row, separated by commas, semicolons or tabs.

    Args:
        path: File to read.
        label: Column of the labels, integers or names; `classes` lists them in ascending order.
        site: Column of the sites, if any.
        real: Treat labels as numbers to regress on.
        features: Columns to use; by default all others.
        hashed: Number of features to hash the words of `text` into, after the other features.
        text: Column of the text.
        missing_values: Treatment of cells that are empty or say NA, NaN, null, none, ? or a full
            stop: "refuse" them, "drop" their rows, fill features by the "mean" of the column over
            the rows of the same site, by a number, or by a number for each column, {"age": 50.0};
            "keep" them as NaN. `Dataset.missing` counts them.

    Returns:
        The data set.

    Raises:
        DataError: The file cannot be used; the message gives cause and remedy.
    """
    path, treatment = Path(path), parse_treatment(missing_values)
    lines, header = _lines(path, label)
    columns = feature_columns(
        path, header, label, site, features=features, text=text if hashed else None
    )
    column = lambda name: [cells[header.index(name)].strip() for _, cells in lines]
    if site is not None:
        empty_rows = [n for (n, _), value in zip(lines, column(site)) if not value]
        raise_for_cells(
            path, [f"row {n}, column {site!r}: empty" for n in empty_rows], "name the site"
        )
    rows = _numbers(path, lines, header, columns, treatment)
    sites = None if site is None else np.array(column(site))
    names = [header[k] for k in columns]
    # "none" may be a class, but it is not a number.
    is_empty = np.array([is_missing(cell) if real else not cell for cell in column(label)])
    missing: tuple[MissingCells, ...] = ()
    if treatment.drops:
        target = np.where(is_empty, np.nan, 0.0)[:, None]
        is_complete, missing = complete_rows(
            np.hstack([rows, target]), [*names, label], sites, path
        )
        lines = [line for line, complete in zip(lines, is_complete) if complete]
        rows, sites = rows[is_complete], None if sites is None else sites[is_complete]
    else:
        empty_rows = [lines[i][0] for i in np.flatnonzero(is_empty)]
        raise_for_cells(
            path, [f"row {n}, column {label!r}: empty" for n in empty_rows], LABEL_REMEDY
        )
    if hashed:
        rows = np.hstack([rows, hashed_text.features(column(text), hashed)])
        names += hashed_text.names(text, hashed)
    labels = parse_labels(column(label), [n for n, _ in lines], label, path, real=real)
    dataset = build_dataset(
        path, rows, labels, names, real=real, sites=sites, missing=treatment.keeps
    )
    return fill_sites(replace(dataset, missing=missing), missing_values)


def _numbers(
    path: Path,
    lines: Sequence[tuple[int, list[str]]],
    header: Sequence[str],
    columns: Sequence[int],
    treatment: CellTreatment,
) -> NDArray[np.float64]:
    """Parse the features as numbers, NaN for allowed missing cells."""
    rows = np.zeros((len(lines), len(columns)))
    bad: list[tuple[int, str, bool]] = []  # row, description, whether the cell is missing
    texts: dict[str, str] = {}  # text columns, with an example
    for position, k in enumerate(columns):
        cells = [row[k].strip() for _, row in lines]
        rows[:, position] = [parse_number(cell) for cell in cells]
        not_numbers = [
            (n, cell) for (n, _), cell in zip(lines, cells) if math.isnan(parse_number(cell))
        ]
        not_missing = [(n, cell) for n, cell in not_numbers if not is_missing(cell)]
        filled = len(cells) - (len(not_numbers) - len(not_missing))
        if (
            not_missing
            and 2 * len(not_missing) > filled
            and not any(_is_odd_number(c) for _, c in not_missing)
        ):
            texts[header[k]] = not_missing[0][1]
            continue
        for n, cell in not_numbers:
            location = f"row {n}, column {header[k]!r}: "
            if not is_missing(cell):
                bad.append((n, f"{location}{cell!r} is not a finite number", False))
            elif not (treatment.keeps or treatment.drops):
                bad.append((n, f"{location}{cell!r} is a missing value", True))
    if texts:
        _refuse_texts(path, texts, [header[k] for k in columns if header[k] not in texts])
    bad.sort(key=lambda entry: entry[0])
    correct = "correct these cells, with a point in decimal numbers"
    kinds = {missing for _, _, missing in bad}
    remedy = f"{correct}; of missing values, {REMEDY}" if len(kinds) > 1 else correct
    raise_for_cells(
        path, [description for _, description, _ in bad], REMEDY if kinds == {True} else remedy
    )
    return rows


def _is_odd_number(cell: str) -> bool:
    """Return whether a cell was meant to be a number: 1,5 or 1_5 or 1e99."""
    try:
        float(cell.replace(",", "."))
    except ValueError:
        return False
    return True


def _refuse_texts(path: Path, texts: dict[str, str], others: Sequence[str]) -> None:
    """Refuse text columns, and explain how to leave them out or use them."""
    listed = " and ".join(f"{name!r} ({example!r}, ...)" for name, example in texts.items())
    is_single = len(texts) == 1
    names = ", ".join(f'"{name}"' for name in others)
    kind = "column" if is_single else "columns"
    raise DataError(
        f"{path}: {kind} {listed} {'holds' if is_single else 'hold'} text, not numbers; name the "
        f"columns to use, as in features = [{names}], or make features of the words of a column, "
        f'as in hashed = 64, text = "{next(iter(texts))}"'
    )


def feature_columns(
    path: Path,
    header: list[str],
    label: str,
    site: str | None,
    *,
    features: Sequence[str] | None,
    text: str | None = None,
) -> list[int]:
    """Return the indices of the features in the header, in their order, without text columns."""
    reserved = [label, *(name for name in (site, text) if name is not None)]
    for name in [*reserved, *(features or ())]:
        if name not in header:
            raise DataError(f"{path}: no column {name!r}; {did_you_mean(name, header)}")
    if features is not None and (overlap := {*features} & {*reserved}):
        raise DataError(
            f"{path}: {min(overlap)!r} cannot be a feature too; leave it out of features"
        )
    names = [name for name in header if name not in reserved] if features is None else features
    if not names and text is None:
        raise DataError(f"{path}: no feature column besides {label!r}; add one")
    return [header.index(name) for name in names]


def _lines(path: Path, label: str) -> tuple[list[tuple[int, list[str]]], list[str]]:
    """Return the numbered lines below the header, all of its width, and the header."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as stream:
            separator = _separator(stream.readline(), label)
            stream.seek(0)
            table = reader(stream, strict=True, delimiter=separator)
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


def _separator(first: str, label: str) -> str:
    """Detect the separator: one that yields the label column, else the most frequent."""
    cells = lambda separator: [
        name.strip().strip('"') for name in first.rstrip("\r\n").split(separator)
    ]
    for separator in SEPARATORS:
        if label in cells(separator) and len(cells(separator)) > 1:
            return separator
    return max(SEPARATORS, key=first.count)
