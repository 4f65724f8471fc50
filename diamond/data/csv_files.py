"""Reader of the user's own csv tables."""

from collections.abc import Mapping, Sequence
from csv import Error, reader
from pathlib import Path

from .dataset import DataError, Dataset
from .missing_values import MissingValues
from .table_columns import Categories, Cells, Column
from .table_rows import NO_LEVELS, DataTable, TableOptions, read_dataset

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
    categories: Categories = "refuse",
    levels: Mapping[str, Sequence[str]] = NO_LEVELS,
    columns: Sequence[Column] | None = None,
) -> Dataset:
    """Read a csv table with a header row, separated by commas, semicolons or tabs.

    Numbers are features as they are; true, false, yes and no are 1 and 0, and dates in ISO 8601 the
    number of days since 1970.

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
            the rows of the same site, by a number, or by a number for each feature, {"age": 50.0};
            "keep" them as NaN. `Dataset.missing` counts them.
        categories: Treatment of columns of text: "refuse" them, or "one_hot", which makes one
            feature of each text that the column has, such as `sex=F`.
        levels: Levels of columns to be one-hot coded, {"sex": ["F", "M"]}; other cells are refused.
        columns: Columns of an earlier reading (`Dataset.columns`), in place of finding their kinds.

    Raises:
        DataError: The file cannot be used; the message gives cause and remedy.
    """
    options = TableOptions(
        label,
        site,
        real,
        features,
        hashed,
        text,
        missing_values,
        categories,
        levels,
        columns,
    )
    return read_dataset(read_csv(Path(path), label), options)


def read_csv(path: Path, name: str) -> DataTable:
    """Read the table of a csv file, of which one column is called `name`."""
    lines, header = _lines(path, name)

    def column(name: str) -> Cells:
        k = header.index(name)
        return [cells[k].strip() for _, cells in lines]

    return DataTable(path, header, [number for number, _ in lines], column)


def _lines(path: Path, name: str) -> tuple[list[tuple[int, list[str]]], list[str]]:
    """Return the numbered lines below the header, all of its width, and the header."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as stream:
            separator = _separator(stream.readline(), name)
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


def _separator(first: str, name: str) -> str:
    """Detect the separator: one that yields the column `name`, else the most frequent."""
    cells = lambda separator: [
        cell.strip().strip('"') for cell in first.rstrip("\r\n").split(separator)
    ]
    for separator in SEPARATORS:
        if name in cells(separator) and len(cells(separator)) > 1:
            return separator
    return max(SEPARATORS, key=first.count)
