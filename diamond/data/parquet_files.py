"""Reader of the user's own Parquet tables."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .dataset import DataError, Dataset
from .missing_values import MissingValues
from .table_columns import Categories, Cells, Column
from .table_rows import NO_LEVELS, DataTable, TableOptions, read_dataset


def parquet(
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
    """Read a Parquet table; arguments and result are as in `csv`. Needs pyarrow."""
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
    return read_dataset(read_parquet(Path(path)), options)


def read_parquet(path: Path) -> DataTable:
    """Read the table of a Parquet file."""
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
    if not table.num_rows:
        raise DataError(f"{path}: no rows; give one or more")
    header, rows = list(table.column_names), range(1, table.num_rows + 1)
    return DataTable(path, header, rows, lambda name: _cells(table.column(name)))


def _cells(column: Any) -> Cells:
    """Return numbers and booleans as numbers, everything else as text."""
    from pyarrow import types

    tests = types.is_integer, types.is_floating, types.is_boolean
    if any(test(column.type) for test in tests):
        return column.cast("float64", safe=False).to_numpy().astype(float)
    return ["" if value is None else str(value).strip() for value in column.to_pylist()]
