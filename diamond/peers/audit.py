"""A line in the log for every connection that is refused, and for every neighbour that misbehaves.

A flood must not fill the disk: of one address, a few lines a minute are written, and then how many
more there were.
"""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from .plain_text import printable

LOG = logging.getLogger("diamond.peers")
LINES, SECONDS = 20, 60.0  # so many lines of one source in so long
SOURCES = 1000  # whose lines are counted at a time


@dataclass
class Audit:
    """Writes to the log; `counts` has how often each source was written of or left out."""

    say: Callable[[str], None] = LOG.warning
    clock: Callable[[], float] = time.monotonic
    counts: dict[str, int] = field(default_factory=dict)
    _since: dict[str, tuple[float, int]] = field(default_factory=dict)  # and lines since then

    def note(self, source: str, what: object) -> None:
        """Something about `source`: an address with its port, a neighbour at one, or a neighbour.

        Those of one machine are counted together, whatever the port.
        """
        machine = source.rpartition(" at ")[2].rpartition(":")[0] or source
        now, known = self.clock(), self._since.get(machine)
        self.counts[machine] = self.counts.get(machine, 0) + 1
        if known is None or now - known[0] > SECONDS:
            if known and known[1] > LINES:
                self.say(f"{printable(machine)}: {known[1] - LINES} more lines left out")
            self._make_room()
            known = now, 0
        self._since[machine] = known[0], known[1] + 1
        if known[1] < LINES:
            self.say(f"{printable(source)}: {printable(what)}")

    def _make_room(self) -> None:
        while len(self._since) >= SOURCES:
            oldest = next(iter(self._since))
            del self._since[oldest]
            self.counts.pop(oldest, None)
