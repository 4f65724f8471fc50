"""Progress of a site's run: one live table on a terminal, plain lines elsewhere."""

import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from ..metrics.display import MIN_PAUSE, format_duration, print_message
from ..sites.rounds.node import Node
from .app import STARTED

REPORT_SECONDS = 10.0  # seconds between messages about a neighbour that is awaited
MIN_WAIT = 1.0  # shortest wait for a neighbour, in seconds, that is reported


class SiteProgress:
    """Progress of a site's node and its last evaluation, as lines or as a table.

    Args:
        names: Names of the neighbours by their numbers.
        rounds: Number of rounds of the run.
        lines: Print plain lines.
    """

    def __init__(self, names: Mapping[int, str], rounds: int, lines: bool = False):
        self.names, self.rounds, self.lines = names, rounds, lines
        self.node: Node | None = None
        self.last: dict[str, Any] = {}
        self.printed = -MIN_PAUSE

    def begin(self, node: Node) -> None:
        self.node = node

    def ready(self) -> None:
        """Report that the first round begins."""
        if self.lines and self.node is not None:
            elapsed, t = time.monotonic() - STARTED, self.node.t
            waiting = self.node.greeting_seconds
            print_message(
                f"ready for round {t} after {elapsed:.1f} s, {waiting:.1f} of them waiting for "
                f"other sites",
                event="ready",
                values={"round": t, "seconds": elapsed, "waited": waiting},
            )

    def progress(self, entries: list[dict[str, Any]]) -> None:
        self.last = last = entries[-1]
        end = self.rounds if self.node is None else self.node.rounds
        is_first_or_last, now = last["round"] in (0, end), time.monotonic()
        if not self.lines or (not is_first_or_last and now - self.printed < MIN_PAUSE):
            return
        self.printed = now
        states = " ".join(f"{name}={state!r}" for name, state in self.neighbours().items())
        distances = "lower_error", "value_gap", "disagreement"  # a network has no lower_error
        measured = {name: last[name] for name in distances if name in last}
        text = " ".join(f"{name}={value:.3g}" for name, value in measured.items())
        costs = "round", "local_loss", "bytes", "seconds", "waited"
        print_message(
            f"round={last['round']}/{self.rounds} local_loss={last['local_loss']:.4g} {text} "
            f"MB={last['bytes'] / 1e6:.3g} seconds={last['seconds']:.1f} "
            f"waited={last['waited']:.1f} {states}",
            event="progress",
            values={name: last[name] for name in costs} | measured | {"rounds": self.rounds},
        )

    def neighbours(self) -> dict[str, str]:
        """Each neighbour's state: the round of its last message, and how long it is awaited."""
        if self.node is None:
            return {}
        names = {**self.node.names, **self.names}
        return {names[j]: self._state(self.node, j) for j in self.node.agent.neighbours}

    def _state(self, node: Node, j: int) -> str:
        status, reason = node.neighbour_status[j], node.wait_records[j].last_error
        position = f"round {status.round}" if status.round >= 0 else "no message yet"
        if status.seconds_awaited() < MIN_WAIT:
            return position
        waited = f"awaited for {format_duration(status.seconds_awaited())}"
        return ", ".join([position, waited, *([reason] if reason else [])])

    def __rich__(self) -> Any:
        from rich.table import Table

        table = Table(box=None, pad_edge=False, show_header=False)
        if (node := self.node) is None:
            return table
        table.add_row("round", f"{node.t} of {self.rounds}")
        if last := self.last:
            table.add_row("local loss", f"{last['local_loss']:.4g} (round {last['round']})")
            table.add_row("sent", f"{last['bytes'] / 1e6:.3g} MB")
        table.add_row("waited", f"{node.seconds_waited:.1f} of {node.seconds:.1f} s")
        for name, state in self.neighbours().items():
            table.add_row(name, state)
        return table

    def _print_waits(self) -> None:
        if (node := self.node) is None:
            return
        for j, status in node.neighbour_status.items():
            if (seconds := status.seconds_awaited()) >= MIN_WAIT:
                name, reason = {**node.names, **self.names}[j], node.wait_records[j].last_error
                print_message(
                    f"{name}: {self._state(node, j)}",
                    event="waiting",
                    values={"neighbour": name, "seconds": seconds, "reason": reason},
                )

    @contextmanager
    def reporting_waits(self) -> Iterator[None]:
        """Print every ten seconds which neighbours are awaited."""
        has_ended = threading.Event()

        def report() -> None:
            while not has_ended.wait(REPORT_SECONDS):
                self._print_waits()

        threading.Thread(target=report, daemon=True).start()
        try:
            yield
        finally:
            has_ended.set()


@contextmanager
def show_site_progress(
    names: Mapping[int, str], rounds: int, quiet: bool, *, as_lines: bool = False
) -> Iterator[SiteProgress]:
    """Show the progress where the messages go: as a table, as lines, or not at all."""
    as_lines = as_lines or not sys.stderr.isatty()
    display = SiteProgress(names, rounds, lines=not quiet and as_lines)
    if quiet:
        yield display
    elif display.lines:
        with display.reporting_waits():
            yield display
    else:
        from rich.console import Console
        from rich.live import Live

        console = Console(stderr=True, markup=False)  # neighbours write reasons for waiting
        with Live(display, console=console, refresh_per_second=4):
            yield display
