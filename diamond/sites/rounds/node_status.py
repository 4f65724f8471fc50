"""Status of a node and of its neighbours as plain data, and the validation of one from outside."""

import math
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...core.parsing import refuse_unreadable
from ...metrics.site_status import SiteStatus, SiteWait
from ..transport.audit import sanitize_text
from ..transport.wire_format import FrameError
from .round_deadline import DeadlineEdges

if TYPE_CHECKING:
    from .node import Node

MAX_NUMBER = 1e100  # in a status


def describe_node(node: "Node") -> dict[str, Any]:
    """Return the state of the agent and whom it waits for."""
    state, edges = "stopping" if node.shutdown.requested else "running", node.edges
    has_ended = node.progress is not None and node.progress.has_ended
    end = node.rounds if node.latest_round else node.planned_rounds
    if node.t == end or has_ended:
        state = "finished"
    elif edges and edges.stuck:
        state = "stuck"
    waiting = [
        {"agent": j, "seconds": s.seconds_awaited(), "why": node.wait_records[j].last_error}
        for j, s in node.neighbour_status.items()
        if s.awaited_since is not None
    ]
    late = edges.late if isinstance(edges, DeadlineEdges) else set()
    away = sorted({*edges.absent} | late) if edges else []
    position = {"agent": node.agent.number, "round": node.t, "rounds": node.planned_rounds}
    status: dict[str, Any] = position | {"state": state, "waiting": waiting, "away": away}
    if has_ended and node.progress is not None:
        status["message"] = node.progress.end_reason
    status["pace"] = node.seconds / max(1, node.t - node.first_round)
    if node.ledger is not None:
        status |= {"epsilon": node.ledger.spent, "budget": node.ledger.terms.epsilon}
    if node.signatures is not None:
        status |= {"liars": sorted(node.signatures.proven)}
    return status


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


@refuse_unreadable(FrameError, "an answer that is no status")
def validate_status(document: Mapping[str, Any], agents: int) -> SiteStatus:
    """Validate a site's answer about its status: each field has its type and is bounded."""
    numbers = lambda name: [
        _check_int(entry, agents) for entry in _check_list(document, name, agents)
    ]
    waiting = [
        SiteWait(
            agent=_check_int(entry["agent"], agents),
            seconds=_check_number(entry["seconds"]),
            why=sanitize_text(_check_text(entry["why"])),
        )
        for entry in _check_list(document, "waiting", agents)
    ]
    status = SiteStatus(
        agent=_check_int(document["agent"], agents),
        round=_check_int(document["round"]),
        rounds=_check_int(document["rounds"]),
        state=sanitize_text(_check_text(document["state"]), 20),
        waiting=waiting,
        away=numbers("away"),
        connected=numbers("connected"),
    )
    if liars := numbers("liars"):
        status["liars"] = liars
    if "pace" in document:
        status["pace"] = _check_number(document["pace"])
    if "epsilon" in document:
        status["epsilon"] = _check_number(document["epsilon"])
        status["budget"] = _check_number(document["budget"])
    if message := sanitize_text(_check_text(document.get("message", ""))):
        status["message"] = message
    if "loss" in document and math.isfinite(document["loss"]):
        status["loss"] = _check_number(document["loss"])
    return status


def _check_int(value: Any, limit: int = 2**31) -> int:
    if type(value) is not int or not 0 <= value < limit:
        raise ValueError("no number of a round or of a member")
    return value


def _check_number(value: Any) -> float:
    if type(value) not in (int, float) or not abs(value) <= MAX_NUMBER:
        raise ValueError("no finite number")
    return float(value)


def _check_text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError("no text")
    return value


def _check_list(document: Mapping[str, Any], name: str, limit: int) -> list[Any]:
    entries = document.get(name, [])
    if not isinstance(entries, list) or len(entries) > limit:
        raise ValueError("no list of members")
    return entries
