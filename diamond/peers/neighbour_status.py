"""Status of a neighbour during the run, for monitoring."""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from .text_sanitizing import sanitize_text
from .wire_format import FrameError


@dataclass
class NeighbourStatus:
    """Round of the last message, and since when the next one is awaited."""

    round: int = -1
    awaited_since: float | None = None  # `time.monotonic`; None: nothing is awaited

    @contextmanager
    def mark_awaited(self) -> Iterator[None]:
        """Mark a message as awaited."""
        self.awaited_since = time.monotonic()
        try:
            yield
        finally:
            self.awaited_since = None

    def seconds_awaited(self) -> float:
        """Return the seconds that the next message has been awaited."""
        return 0.0 if self.awaited_since is None else time.monotonic() - self.awaited_since


def validate_status(status: Mapping[str, Any], agents: int) -> dict[str, Any]:
    """Validate a site's answer about its status."""
    try:
        agent, round, rounds = (_check_int(status[name]) for name in ("agent", "round", "rounds"))
        waiting = [
            {
                "agent": _check_int(entry["agent"], agents),
                "seconds": float(entry["seconds"]),
                "why": sanitize_text(entry["why"]),
            }
            for entry in status["waiting"]
        ]
        away = [_check_int(entry, agents) for entry in status["away"]]
        liars = [_check_int(entry, agents) for entry in status.get("liars", [])]
        connected = [_check_int(entry, agents) for entry in status.get("connected", [])]
        state = sanitize_text(status["state"], 20)
        optional = "epsilon", "budget", "pace"  # pace: seconds of a round
        numbers = {name: float(status[name]) for name in optional if name in status}
    except (KeyError, TypeError, ValueError) as cause:
        raise FrameError(
            f"an answer that is no status ({sanitize_text(repr(cause), 80)})"
        ) from None
    where = {"agent": agent, "round": round, "rounds": rounds, "state": state}
    proven = {"liars": liars} if liars else {}
    return where | {"waiting": waiting, "away": away, "connected": connected} | numbers | proven


def _check_int(value: Any, limit: int = 2**31) -> int:
    if type(value) is not int or not 0 <= value < limit:
        raise ValueError(value)
    return value
