"""What an agent knows of a neighbour while the run goes on, for whoever watches."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass
class NeighbourStatus:
    """The round of the last message that came, and since when the next one is awaited."""

    round: int = -1
    since: float | None = None  # on the clock of `time.monotonic`; None: nothing is awaited

    @contextmanager
    def awaited(self) -> Iterator[None]:
        """While a message is awaited."""
        self.since = time.monotonic()
        try:
            yield
        finally:
            self.since = None

    def waiting(self) -> float:
        """Seconds that the next message has been awaited."""
        return 0.0 if self.since is None else time.monotonic() - self.since
