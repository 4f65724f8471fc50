"""Tables of runs on a terminal: if the width is short, number columns are dropped before names."""

from collections.abc import Iterable, Sequence
from typing import Any

import typer

from ..metrics.display import COLUMN_SPACING, fit_columns

Row = dict[str, Any]
NAMES = ("run", "algorithm", "network")
IDENTITY = (*NAMES, "seed", "seeds", "diverged", "status", "round")
MEASURES = ("upper_loss", "metric", "consensus")
SITE_MEASURES = (
    "local_loss",
    "lower_error",
    "disagreement",
)  # columns of sites, instead of MEASURED
COSTS = ("samples", "bytes", "seconds", "network_seconds", "joules", "waited")
NOT_SHOWN = ("stationarity", "gradients", "hvps", "jvps")
KNOWN_COLUMNS = {*IDENTITY, *MEASURES, *SITE_MEASURES, *COSTS, *NOT_SHOWN, "digest", "started"}
# Columns to drop if not all fit, leftmost first; the user's own metrics go before `LATER`. A run's
# name contains its algorithm, network and seed.
DROPPED_FIRST = (
    *("waited", "seconds", "consensus", "disagreement", "lower_error", "joules", "bytes"),
    *("samples", "network_seconds"),
)
DROPPED_LATER = ("metric", "local_loss", "round", "started", "diverged", "seeds")
IN_NAME = ("seed", "network", "algorithm")


def print_table(table: Sequence[Row], columns: Sequence[str] = ()) -> None:
    """Print one run as a list, several as a table without the columns equal in all rows."""
    from rich.console import Console
    from rich.table import Table

    selected = select_columns(table, columns)
    if len(table) == 1 and not columns:
        for column in selected:
            typer.echo(f"{heading(column):12} {format_cell(table[0], column)}")
        return
    console = Console(highlight=False, markup=False)
    fitting = columns_that_fit(table, selected, console.width)
    rich_table = Table(pad_edge=False, box=None, padding=(0, COLUMN_SPACING, 0, 0))
    for column in fitting:
        is_text = isinstance(table[0].get(column), str)
        rich_table.add_column(
            heading(column),
            justify="left" if is_text else "right",
            no_wrap=not is_text,
            overflow="fold",
        )
    for row in table:
        rich_table.add_row(*(format_cell(row, column) for column in fitting))
    console.print(rich_table)
    if omitted := [heading(column) for column in selected if column not in fitting]:
        note = f"not shown at {console.width} columns: {', '.join(omitted)}; --json prints all"
        console.print(note, style="dim", soft_wrap=True)


def text_table(columns: Sequence[str], rows: Iterable[Sequence[str]], title: str = "") -> Any:
    """Build a rich table: names in the first column, numbers in the others."""
    from rich.table import Table

    table = Table(title=title) if title else Table(box=None, pad_edge=False)
    for i, column in enumerate(columns):
        side: Any = "right" if i else "left"
        table.add_column(column, justify=side, no_wrap=not i, overflow="fold")
    for row in rows:
        table.add_row(*row)
    return table


def print_text_rows(table: Sequence[Row], columns: Sequence[str]) -> None:
    """Print rows of text, folded where the width is short; the first column is never folded."""
    from rich.console import Console
    from rich.table import Table

    rich_table = Table(pad_edge=False, box=None, padding=(0, COLUMN_SPACING, 0, 0))
    for i, column in enumerate(columns):
        rich_table.add_column(heading(column), no_wrap=i == 0, overflow="fold")
    for row in table:
        rich_table.add_row(*(str(row[column]) for column in columns))
    Console(highlight=False, markup=False).print(rich_table)


def columns_that_fit(table: Sequence[Row], columns: Sequence[str], width: int) -> list[str]:
    """Return the columns that fit into `width`; columns of names are always kept."""
    metrics = [column for column in columns if column not in KNOWN_COLUMNS]
    order = [
        *DROPPED_FIRST,
        *metrics,
        *DROPPED_LATER,
        *(IN_NAME if "run" in columns else ()),
        "upper_loss",
        "status",
    ]
    widths = {
        c: max(len(heading(c)), *(len(format_cell(row, c)) for row in table)) for c in columns
    }
    return fit_columns(widths, order, width)


def select_columns(table: Sequence[Row], columns: Sequence[str] = ()) -> list[str]:
    """Return the columns to show: `columns`, or the usual ones and the user's own metrics."""
    present = list(dict.fromkeys(key for row in table for key in row))
    if columns:
        return [column for column in columns if column in present]
    metrics = [
        key for key in present if key not in KNOWN_COLUMNS and not key.endswith(("_sd", "_se"))
    ]
    measured = MEASURES if "metric" in present else (*MEASURES, *SITE_MEASURES)
    ordered = [*IDENTITY, *measured, *metrics, *COSTS]
    has_several_rows = len(table) > 1
    is_constant = lambda column: (
        has_several_rows and len({str(row.get(column)) for row in table}) == 1
    )
    return [
        c for c in ordered if c in present and not (c in IDENTITY and c != "run" and is_constant(c))
    ]


def heading(column: str) -> str:
    """Return the title of a column."""
    return "MB" if column == "bytes" else column.replace("_", " ")


def format_cell(row: Row, column: str) -> str:
    """Format one cell of a row."""
    value = row.get(column, "")
    spread = row.get(f"{column}_sd", row.get(f"{column}_se"))  # over seeds, or of a sample
    if column == "started":
        return value[:16].replace("T", " ")
    if isinstance(value, str):
        return value
    if column == "bytes":
        return f"{value / 1e6:,.3g}"
    text = f"{value:,.0f}" if column in ("samples", "round") else f"{value:.4g}"
    return f"{text} ± {spread:.2g}" if spread else text
