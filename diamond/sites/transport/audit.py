"""Log of a site, of lines "source: event": its own events, and those of neighbours and strangers.

A flood from outside must not fill the disk: for each address a few lines per minute are written,
then the number of omitted ones. Foreign text becomes one line without control codes, of bounded
length.
"""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

LOG = logging.getLogger("diamond.sites")
MAX_LINES, WINDOW_SECONDS = 20, 60.0  # lines per source in this time
MAX_SOURCES = 1000  # counted at a time


def log_event(source: object, event: object) -> None:
    """Log an event of this site itself, in full."""
    LOG.warning(f"{source}: {event}")


@dataclass
class Audit:
    """Rate-limited log of refused connections and misbehaving neighbours.

    `counts` has the number of events by source.
    """

    write_line: Callable[[str], None] = LOG.warning
    clock: Callable[[], float] = time.monotonic
    counts: dict[str, int] = field(default_factory=dict)
    _windows: dict[str, tuple[float, int]] = field(default_factory=dict)  # start and lines

    def record_event(self, source: str, event: object) -> None:
        """Log an event about `source`: an address with its port, or a neighbour.

        Events of one machine are counted together, whatever the port.
        """
        machine = source.rpartition(" at ")[2].rpartition(":")[0] or source
        now, window = self.clock(), self._windows.get(machine)
        self.counts[machine] = self.counts.get(machine, 0) + 1
        if window is None or now - window[0] > WINDOW_SECONDS:
            if window and window[1] > MAX_LINES:
                self.write_line(
                    f"{sanitize_text(machine)}: {window[1] - MAX_LINES} more lines left out"
                )
            self._drop_oldest()
            window = now, 0
        self._windows[machine] = window[0], window[1] + 1
        if window[1] < MAX_LINES:
            self.write_line(f"{sanitize_text(source)}: {sanitize_text(event)}")

    def _drop_oldest(self) -> None:
        while len(self._windows) >= MAX_SOURCES:
            oldest = next(iter(self._windows))
            del self._windows[oldest]
            self.counts.pop(oldest, None)


MAX_LENGTH = 400  # characters


def sanitize_text(value: Any, max_length: int = MAX_LENGTH) -> str:
    """Return `value` as text with all special characters escaped."""
    text = str(value)
    cut = text[: max_length + 1]
    plain = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in cut)
    is_whole = len(text) <= max_length and len(plain) <= max_length
    return plain if is_whole else plain[: max_length - 3] + "..."
