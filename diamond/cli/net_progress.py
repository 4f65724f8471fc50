"""How a site's run comes along: one live table on a terminal, plain lines elsewhere."""

import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from ..peers.node import Node
from .app import BEGUN, talk
from .forecasts import duration

PAUSE = 2.0  # seconds between plain lines, at least
SILENCE = 10.0  # seconds between words on a neighbour that does not come
LONG = 1.0  # seconds of waiting for a neighbour that are worth saying


class Standing:
    """Where the run stands, by its node and its last evaluation; `names` are the neighbours'."""

    def __init__(self, names: Mapping[int, str], rounds: int):
        self.names, self.rounds = names, rounds
        self.node: Node | None = None
        self.last: dict[str, Any] = {}

    def begin(self, node: Node) -> None:
        self.node = node

    def ready(self) -> None:
        """The first round begins."""

    def progress(self, entries: list[dict[str, Any]]) -> None:
        self.last = entries[-1]

    def neighbours(self) -> dict[str, str]:
        """Each neighbour's state: the round it was last heard at, and how long it is awaited."""
        assert self.node is not None
        return {self.names[j]: self._state(j) for j in self.node.agent.neighbours}

    def _state(self, j: int) -> str:
        assert self.node is not None
        heard, why = self.node.heard[j], self.node.waits[j].last
        at = f"round {heard.round}" if heard.round >= 0 else "not heard yet"
        if heard.waiting() < LONG:
            return at
        waited = f"awaited for {duration(heard.waiting())}"
        return ", ".join([at, waited, *([why] if why else [])])


class Quiet(Standing):
    """Nothing until the end."""


class Lines(Standing):
    """A line of key=value now and then, the same for every eye and every parser."""

    said = -PAUSE

    def ready(self) -> None:
        assert self.node is not None
        took, others = time.monotonic() - BEGUN, self.node.greeting
        talk(f"ready for round {self.node.t} after {took:.1f} s, {others:.1f} of them for others")

    @contextmanager
    def impatient(self) -> Iterator[None]:
        """Meanwhile, say every ten seconds who is awaited."""
        over = threading.Event()

        def tell() -> None:
            while not over.wait(SILENCE):
                for name, state in self.neighbours().items() if self.node else ():
                    if "awaited" in state:
                        talk(f"{name}: {state}")

        threading.Thread(target=tell, daemon=True).start()
        try:
            yield
        finally:
            over.set()

    def progress(self, entries: list[dict[str, Any]]) -> None:
        super().progress(entries)
        last, now = self.last, time.monotonic()
        if last["round"] not in (0, self.rounds) and now - self.said < PAUSE:
            return
        self.said = now
        heard = " ".join(f"{name}={state!r}" for name, state in self.neighbours().items())
        talk(
            f"round={last['round']}/{self.rounds} local_loss={last['local_loss']:.4g} "
            f"lower_error={last['lower_error']:.3g} disagreement={last['disagreement']:.3g} "
            f"MB={last['bytes'] / 1e6:.3g} seconds={last['seconds']:.1f} "
            f"waited={last['waited']:.1f} {heard}"
        )


class Live(Standing):
    """A table that is drawn anew while the run goes on."""

    def __rich__(self) -> Any:
        from rich.table import Table

        table = Table(box=None, pad_edge=False, show_header=False)
        if self.node is None:
            return table
        last, node = self.last, self.node
        table.add_row("round", f"{node.t} of {self.rounds}")
        if last:
            table.add_row("local loss", f"{last['local_loss']:.4g} (round {last['round']})")
            table.add_row("sent", f"{last['bytes'] / 1e6:.3g} MB")
        table.add_row("waited", f"{node.waited:.1f} of {node.seconds:.1f} s")
        for name, state in self.neighbours().items():
            table.add_row(name, state)
        return table


@contextmanager
def watching(names: Mapping[int, str], rounds: int, quiet: bool) -> Iterator[Standing]:
    """The display that suits where the talk goes."""
    if quiet:
        yield Quiet(names, rounds)
    elif not sys.stderr.isatty():
        lines = Lines(names, rounds)
        with lines.impatient():
            yield lines
    else:
        from rich.console import Console
        from rich.live import Live as Display

        board = Live(names, rounds)
        with Display(board, console=Console(stderr=True), refresh_per_second=4):
            yield board
