"""Log of refused connections and misbehaving neighbours.

A flood must not fill the disk: for each address a few lines per minute are written, then the number
of omitted ones.
"""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from .text_sanitizing import printable

LOG = logging.getLogger("diamond.peers")
LINES, SECONDS = 20, 60.0  # lines per source in this time
SOURCES = 1000  # maximum number of sources counted at a time


@dataclass
class Audit:
    """Rate-limited log; `counts` has the number of events by source."""

    say: Callable[[str], None] = LOG.warning
    clock: Callable[[], float] = time.monotonic
    counts: dict[str, int] = field(default_factory=dict)
    _since: dict[str, tuple[float, int]] = field(default_factory=dict)  # start and lines

    def note(self, source: str, what: object) -> None:
        """Log an event about `source`: an address with its port, or a neighbour.

        Events of one machine are counted together, whatever the port.
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
