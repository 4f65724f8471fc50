"""Status of a neighbour during the run, for monitoring."""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from .text_sanitizing import printable
from .wire_format import FrameError


@dataclass
class NeighbourStatus:
    """Round of the last message, and since when the next one is awaited."""

    round: int = -1
    since: float | None = None  # `time.monotonic`; None: nothing is awaited

    @contextmanager
    def awaited(self) -> Iterator[None]:
        """Mark a message as awaited."""
        self.since = time.monotonic()
        try:
            yield
        finally:
            self.since = None

    def waiting(self) -> float:
        """Return the seconds that the next message has been awaited."""
        return 0.0 if self.since is None else time.monotonic() - self.since


def standing(told: Mapping[str, Any], agents: int) -> dict[str, Any]:
    """Validate a site's answer about its status."""
    try:
        agent, round, rounds = (_whole(told[name]) for name in ("agent", "round", "rounds"))
        waiting = [
            {
                "agent": _whole(one["agent"], agents),
                "seconds": float(one["seconds"]),
                "why": printable(one["why"]),
            }
            for one in told["waiting"]
        ]
        away = [_whole(one, agents) for one in told["away"]]
        state = printable(told["state"], 20)
    except (KeyError, TypeError, ValueError) as cause:
        raise FrameError(f"an answer that is no status ({printable(repr(cause), 80)})") from None
    where = {"agent": agent, "round": round, "rounds": rounds, "state": state}
    return where | {"waiting": waiting, "away": away}


def _whole(value: Any, below: int = 2**31) -> int:
    if type(value) is not int or not 0 <= value < below:
        raise ValueError(value)
    return value
