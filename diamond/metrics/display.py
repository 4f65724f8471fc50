"""Progress display on the error output: a live table on a terminal, plain lines elsewhere."""

import math
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

SPARK_BARS = "▁▂▃▄▅▆▇█"
SPARK_WIDTH = 16  # characters of a sparkline
MIN_PAUSE = 2.0  # minimum seconds between plain lines of one run
LOSSES = ("upper_loss", "local_loss")
MEASURES = (*LOSSES, "metric", "consensus")  # shown if measured
COLUMN_SPACING = 1  # spaces between columns of a table
_in_use = threading.Lock()  # held by the active display: runs nested inside show nothing


MessageValue = str | float
MessageEvent = Literal["message", "notice", "ready", "progress", "waiting"]
MessageWriter = Callable[[str, str, MessageEvent, Mapping[str, MessageValue]], None]
_writers: list[MessageWriter] = []  # the last one writes messages in place of the terminal


@contextmanager
def redirect_messages(writer: MessageWriter) -> Iterator[None]:
    """Pass messages to `writer`: text, style, event and values."""
    _writers.append(writer)
    try:
        yield
    finally:
        _writers.remove(writer)


def print_message(
    message: str = "",
    style: str = "",
    err: bool = True,
    *,
    event: MessageEvent = "message",
    values: Mapping[str, MessageValue] | None = None,
) -> None:
    """Print one line; results go to the standard output, messages to the error output.

    `event` and `values` are the same message for programs, if messages are redirected.
    """
    from rich.console import Console

    if err and _writers:
        return _writers[-1](message, style, event, values or {})

    console = Console(stderr=err, soft_wrap=True, highlight=False, emoji=False)
    console.print(message, style=style, markup=False)


@dataclass
class DisplayRow:
    """Progress of one run."""

    rounds: int = 0
    status: str = "waiting"
    entries: list[dict[str, float]] = field(default_factory=list)
    since: float = 0.0
    first: tuple[float, float] = (0.0, 0.0)  # round and time of the first evaluation
    last: float = 0.0  # time of the last evaluation

    def rounds_per_second(self) -> float:
        """Return rounds per second since the first evaluation, including measuring."""
        rounds_made = self.entries[-1]["round"] - self.first[0] if self.entries else 0
        elapsed = self.last - self.first[1]
        return rounds_made / elapsed if rounds_made and elapsed else 0.0

    def time_left(self) -> str:
        """Return the estimated time left."""
        rounds_per_second = self.rounds_per_second()
        return (
            format_duration((self.rounds - self.entries[-1]["round"]) / rounds_per_second)
            if rounds_per_second
            else ""
        )


def sparkline(values: Sequence[float], width: int = SPARK_WIDTH) -> str:
    """Draw values as a line of bars, on a logarithmic scale if all are positive."""
    step = max(1, -(-len(values) // width))
    heights = [v for v in values[::step] if math.isfinite(v)]
    if not heights:
        return ""
    if min(heights) > 0:
        heights = [math.log10(v) for v in heights]
    low, high = min(heights), max(heights)
    scale = (len(SPARK_BARS) - 1) / (high - low) if high > low else 0.0
    return "".join(SPARK_BARS[round((height - low) * scale)] for height in heights)


class ProgressDisplay:
    """All runs as rows: the state that all displays share."""

    def __init__(self, names: Sequence[str], rounds: int):
        self.rows = {name: DisplayRow(rounds) for name in names}

    def begin(self, name: str, rounds: int) -> None:
        self.rows[name] = DisplayRow(rounds, "starting", since=time.monotonic())

    def stage(self, name: str, stage_name: str) -> None:
        self.rows[name].status = stage_name

    def progress(self, name: str, entries: list[dict[str, float]]) -> None:
        row = self.rows[name]
        if not row.entries:
            row.first = entries[-1]["round"], time.monotonic()
        row.entries, row.status, row.last = entries, "running", time.monotonic()

    def say(self, name: str, message: str) -> None:
        print_message(f"{name}: {message}", "yellow")

    def end(self, name: str, manifest: dict[str, Any]) -> None:
        self.rows[name].status = manifest["status"]


class LineDisplay(ProgressDisplay):
    """Display that prints occasional lines of key=value, readable and parseable."""

    def __init__(self, names: Sequence[str], rounds: int):
        super().__init__(names, rounds)
        self.last_printed = 0.0

    def stage(self, name: str, stage_name: str) -> None:
        super().stage(name, stage_name)
        if stage_name != "running":
            print_message(f"{name}: {stage_name} ...", "dim")

    def progress(self, name: str, entries: list[dict[str, float]]) -> None:
        super().progress(name, entries)
        row, last = self.rows[name], entries[-1]
        is_first_or_last = last["round"] in (0, row.rounds)
        if not is_first_or_last and time.monotonic() - self.last_printed < MIN_PAUSE:
            return
        self.last_printed = time.monotonic()
        exact = "upper_loss" in last
        names = [n for n in MEASURES if n in last and not (exact and n == "local_loss")]
        measures = " ".join(f"{name}={last[name]:.4g}" for name in names)
        print_message(
            f"run={name} round={last['round']}/{row.rounds} {measures} "
            f"samples={last['samples']:.0f} MB={last['bytes'] / 1e6:.3g} "
            f"rounds_per_s={row.rounds_per_second():.4g} eta={row.time_left() or '-'}"
        )


def _format_measure(entry: Mapping[str, float], names: Sequence[str], digits: int) -> str:
    """Format the first of these measures that is present; "" if none is."""
    value = next((entry[name] for name in names if name in entry), None)
    return "" if value is None else f"{value:.{digits}g}"


def _sparkline_value(entry: Mapping[str, float]) -> float:
    """Return the measure that the sparkline shows."""
    return next((entry[name] for name in (*LOSSES, "metric") if name in entry), float("nan"))


class QuietDisplay(ProgressDisplay):
    """Display that prints warnings only."""


class TableDisplay(ProgressDisplay):
    """Display with a table that is redrawn during the runs."""

    COLUMNS = "run round loss metric consensus samples MB r/s left course".split()
    DROP_ORDER = (
        "course consensus MB samples metric r/s loss left".split()
    )  # first to be dropped first

    def __rich_console__(self, console: Any, options: Any) -> Iterator[Any]:
        from rich.table import Table

        table = Table(box=None, pad_edge=False, padding=(0, COLUMN_SPACING, 0, 0))
        blank = [""] * len(self.COLUMNS)
        rows = [[*self.cells(name, row), *blank] for name, row in self.rows.items()]
        needs = {c: max(map(len, (c, *(r[i] for r in rows)))) for i, c in enumerate(self.COLUMNS)}
        columns = fit_columns(needs, self.DROP_ORDER, options.max_width)
        for column in columns:
            is_right_aligned = column not in ("run", "course")
            table.add_column(
                column,
                justify="right" if is_right_aligned else "left",
                no_wrap=is_right_aligned,
                overflow="fold",
            )
        for row in rows:
            table.add_row(*(row[self.COLUMNS.index(column)] for column in columns))
        yield table

    def cells(self, name: str, row: DisplayRow) -> list[str]:
        """Return the cells of one run."""
        if not row.entries:
            waiting_time = f" {format_duration(time.monotonic() - row.since)}" if row.since else ""
            return [name, row.status + waiting_time]
        last = row.entries[-1]
        return [
            name,
            f"{last['round']:.0f}/{row.rounds}",
            _format_measure(last, LOSSES, 4),
            _format_measure(last, ["metric"], 3),
            _format_measure(last, ["consensus"], 2),
            f"{last['samples']:,.0f}",
            f"{last['bytes'] / 1e6:,.3g}",
            f"{row.rounds_per_second():,.0f}" if row.rounds_per_second() else "",
            row.time_left() if row.status == "running" else row.status,
            sparkline([_sparkline_value(entry) for entry in row.entries]),
        ]


class NotebookDisplay(ProgressDisplay):
    """Display with one line below the cell that is replaced; runs of one cell share it."""

    text = ""  # of the last evaluation
    _line: tuple[int, Any] | None = None  # number of the cell, and handle of its line

    def stage(self, name: str, stage_name: str) -> None:
        super().stage(name, stage_name)
        self.write(f"{name}: {stage_name} ...")

    def progress(self, name: str, entries: list[dict[str, float]]) -> None:
        super().progress(name, entries)
        row, last = self.rows[name], entries[-1]
        exact = "upper_loss" in last
        names = [n for n in (*LOSSES, "metric") if n in last and not (exact and n == "local_loss")]
        loss = ", ".join(f"{measure.replace('_', ' ')} {last[measure]:.4g}" for measure in names)
        self.text = f"{name}: round {last['round']:.0f} of at most {row.rounds}, {loss}"
        self.write(f"{self.text}, {row.time_left()} left" if row.time_left() else self.text)

    def write(self, text: str) -> None:
        """Replace the line by `text`."""
        from IPython import display, get_ipython

        content = {"text/plain": text}
        cell = get_ipython().execution_count
        if NotebookDisplay._line is None or NotebookDisplay._line[0] != cell:
            handle = display.display(content, raw=True, display_id=True)
            NotebookDisplay._line = cell, handle
        else:
            NotebookDisplay._line[1].update(content, raw=True)


@contextmanager
def live_table(
    names: Sequence[str], rounds: int, transient: bool = False
) -> Iterator[TableDisplay]:
    """Show a table of runs on the terminal; `transient`: remove it at the end."""
    from rich.console import Console
    from rich.live import Live as Display

    board = TableDisplay(names, rounds)
    options: dict[str, Any] = {"refresh_per_second": 4, "transient": transient}
    # Output that the user redirects to a file must not appear on the terminal.
    options["redirect_stdout"] = bool(sys.stdout and sys.stdout.isatty())
    with Display(board, console=Console(stderr=True), **options):
        yield board


@contextmanager
def progress_display(
    names: Sequence[str], rounds: int, progress: bool = True
) -> Iterator[ProgressDisplay]:
    """Show the progress of runs that are called from Python.

    A table on a terminal, a line in a notebook; nothing elsewhere, without `progress`, or inside
    another display. Display packages are imported only when needed.
    """
    with suppress_display() as is_outermost:
        output = _output_kind() if progress and is_outermost else ""
        if output == "terminal":
            with live_table(names, rounds, transient=True) as board:
                yield board
        elif output == "notebook":
            line = NotebookDisplay(names, rounds)
            yield line
            line.write(line.text)
        else:
            yield QuietDisplay(names, rounds)


@contextmanager
def suppress_display() -> Iterator[bool]:
    """Suppress the progress of runs inside; yields whether no display is active around it."""
    is_outermost = _in_use.acquire(blocking=False)
    try:
        yield is_outermost
    finally:
        if is_outermost:
            _in_use.release()


def _output_kind() -> str:
    """Return where the error output goes: "terminal", "notebook", or ""."""
    if sys.stderr is not None and sys.stderr.isatty():
        return "terminal"
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return "notebook" if type(shell).__name__ == "ZMQInteractiveShell" else ""


def fit_columns(needs: Mapping[str, int], order: Sequence[str], width: int) -> list[str]:
    """Drop columns in the given `order` until the widths `needs` fit into `width`."""
    columns = dict(needs)
    for column in order:
        if sum(need + COLUMN_SPACING for need in columns.values()) - COLUMN_SPACING <= width:
            break
        columns.pop(column, None)
    return list(columns)


def format_duration(seconds: float) -> str:
    """Format a duration: 0.31 s, 12 s, 3 min 20 s, 2 h 5 min."""
    if seconds < 99.5:
        return f"{seconds:.2g} s" if seconds < 9.95 else f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"
