"""Progress of a site's run: one live table on a terminal, plain lines elsewhere."""

import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from ..metrics.display import PAUSE, duration
from ..peers.node import Node
from .app import BEGUN, talk

SILENCE = 10.0  # seconds between messages about a neighbour that is awaited
LONG = 1.0  # shortest wait for a neighbour, in seconds, that is reported


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
        self.printed = -PAUSE

    def begin(self, node: Node) -> None:
        self.node = node

    def ready(self) -> None:
        """Report that the first round begins."""
        if self.lines and self.node is not None:
            took, t, others = time.monotonic() - BEGUN, self.node.t, self.node.greeting
            talk(f"ready for round {t} after {took:.1f} s, {others:.1f} of them for others")

    def progress(self, entries: list[dict[str, Any]]) -> None:
        self.last = last = entries[-1]
        ends, now = last["round"] in (0, self.rounds), time.monotonic()
        if not self.lines or (not ends and now - self.printed < PAUSE):
            return
        self.printed = now
        heard = " ".join(f"{name}={state!r}" for name, state in self.neighbours().items())
        talk(
            f"round={last['round']}/{self.rounds} local_loss={last['local_loss']:.4g} "
            f"lower_error={last['lower_error']:.3g} disagreement={last['disagreement']:.3g} "
            f"MB={last['bytes'] / 1e6:.3g} seconds={last['seconds']:.1f} "
            f"waited={last['waited']:.1f} {heard}"
        )

    def neighbours(self) -> dict[str, str]:
        """Each neighbour's state: the round of its last message, and how long it is awaited."""
        if self.node is None:
            return {}
        return {self.names[j]: self._state(self.node, j) for j in self.node.agent.neighbours}

    def _state(self, node: Node, j: int) -> str:
        heard, why = node.heard[j], node.waits[j].last
        at = f"round {heard.round}" if heard.round >= 0 else "not heard yet"
        if heard.waiting() < LONG:
            return at
        waited = f"awaited for {duration(heard.waiting())}"
        return ", ".join([at, waited, *([why] if why else [])])

    def __rich__(self) -> Any:
        from rich.table import Table

        table = Table(box=None, pad_edge=False, show_header=False)
        if (node := self.node) is None:
            return table
        table.add_row("round", f"{node.t} of {self.rounds}")
        if last := self.last:
            table.add_row("local loss", f"{last['local_loss']:.4g} (round {last['round']})")
            table.add_row("sent", f"{last['bytes'] / 1e6:.3g} MB")
        table.add_row("waited", f"{node.waited:.1f} of {node.seconds:.1f} s")
        for name, state in self.neighbours().items():
            table.add_row(name, state)
        return table

    @contextmanager
    def reporting_waits(self) -> Iterator[None]:
        """Print every ten seconds which neighbours are awaited."""
        over = threading.Event()

        def report() -> None:
            while not over.wait(SILENCE):
                for name, state in self.neighbours().items():
                    if "awaited" in state:
                        talk(f"{name}: {state}")

        threading.Thread(target=report, daemon=True).start()
        try:
            yield
        finally:
            over.set()


@contextmanager
def watching(names: Mapping[int, str], rounds: int, quiet: bool) -> Iterator[SiteProgress]:
    """Show the progress where the messages go: as a table, as lines, or not at all."""
    shown = SiteProgress(names, rounds, lines=not quiet and not sys.stderr.isatty())
    if quiet:
        yield shown
    elif shown.lines:
        with shown.reporting_waits():
            yield shown
    else:
        from rich.console import Console
        from rich.live import Live

        with Live(shown, console=Console(stderr=True), refresh_per_second=4):
            yield shown
