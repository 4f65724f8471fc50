"""Tables of runs on a terminal: if the width is short, number columns are dropped before names."""

from collections.abc import Iterable, Sequence
from typing import Any

import typer

from ..metrics.display import PAD, narrowed

Row = dict[str, Any]
NAMES = ("run", "algorithm", "network")
WHO = (*NAMES, "seed", "seeds", "diverged", "status", "round")
MEASURED = ("metric", "upper_loss", "consensus")
ALONE = ("local_loss", "lower_error", "disagreement")  # columns of sites, instead of MEASURED
SPENT = ("samples", "bytes", "seconds", "network_seconds", "joules", "waited")
ELSEWHERE = ("stationarity", "gradients", "hvps", "jvps")
KNOWN = {*WHO, *MEASURED, *ALONE, *SPENT, *ELSEWHERE, "digest", "started"}
# Columns to drop if not all fit, leftmost first; the user's own metrics go before `LATER`. A run's
# name contains its algorithm, network and seed.
EARLIER = (
    *("waited", "seconds", "consensus", "disagreement", "lower_error", "joules", "bytes"),
    *("samples", "network_seconds"),
)
LATER = ("upper_loss", "local_loss", "round", "started", "diverged", "seeds")
IN_NAME = ("seed", "network", "algorithm")


def print_table(table: Sequence[Row], columns: Sequence[str] = ()) -> None:
    """Print one run as a list, several as a table without the columns equal in all rows."""
    from rich.console import Console
    from rich.table import Table

    shown = columns_of(table, columns)
    if len(table) == 1 and not columns:
        for column in shown:
            typer.echo(f"{heading(column):12} {cell(table[0], column)}")
        return
    console = Console(highlight=False)
    kept = fitting(table, shown, console.width)
    drawn = Table(pad_edge=False, box=None, padding=(0, PAD, 0, 0))
    for column in kept:
        words = isinstance(table[0].get(column), str)
        drawn.add_column(
            heading(column),
            justify="left" if words else "right",
            no_wrap=not words,
            overflow="fold",
        )
    for row in table:
        drawn.add_row(*(cell(row, column) for column in kept))
    console.print(drawn)
    if left := [heading(column) for column in shown if column not in kept]:
        said = f"left out at {console.width} columns: {', '.join(left)}; --json has all"
        console.print(said, style="dim", soft_wrap=True)


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


def print_words(table: Sequence[Row], columns: Sequence[str]) -> None:
    """Print rows of text, folded where the width is short; the first column is never folded."""
    from rich.console import Console
    from rich.table import Table

    drawn = Table(pad_edge=False, box=None, padding=(0, PAD, 0, 0))
    for i, column in enumerate(columns):
        drawn.add_column(heading(column), no_wrap=i == 0, overflow="fold")
    for row in table:
        drawn.add_row(*(str(row[column]) for column in columns))
    Console(highlight=False).print(drawn)


def fitting(table: Sequence[Row], columns: Sequence[str], width: int) -> list[str]:
    """Return the columns that fit into `width`; columns of names are always kept."""
    own = [column for column in columns if column not in KNOWN]
    order = [*EARLIER, *own, *LATER, *(IN_NAME if "run" in columns else ()), "metric", "status"]
    needs = {c: max(len(heading(c)), *(len(cell(row, c)) for row in table)) for c in columns}
    return narrowed(needs, order, width)


def columns_of(table: Sequence[Row], columns: Sequence[str] = ()) -> list[str]:
    """Return the columns to show: `columns`, or the usual ones and the user's own metrics."""
    given = list(dict.fromkeys(key for row in table for key in row))
    if columns:
        return [column for column in columns if column in given]
    own = [key for key in given if key not in KNOWN and not key.endswith(("_sd", "_se"))]
    measured = MEASURED if "metric" in given else (*MEASURED, *ALONE)
    usual = [*WHO, *measured, *own, *SPENT]
    many = len(table) > 1
    same = lambda column: many and len({str(row.get(column)) for row in table}) == 1
    return [c for c in usual if c in given and not (c in WHO and c != "run" and same(c))]


def heading(column: str) -> str:
    """Return the title of a column."""
    return "MB" if column == "bytes" else column.replace("_", " ")


def cell(row: Row, column: str) -> str:
    """Format one cell of a row."""
    value = row.get(column, "")
    spread = row.get(f"{column}_sd", row.get(f"{column}_se"))  # over seeds, or of a sample
    if column == "started":
        return value[:16].replace("T", " ")
    if isinstance(value, str):
        return value
    if column == "bytes":
        return f"{value / 1e6:,.3g}"
    said = f"{value:,.0f}" if column in ("samples", "round") else f"{value:.4g}"
    return f"{said} ± {spread:.2g}" if spread else said
