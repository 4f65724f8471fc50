"""Status of a site, as commands and pages show it: validated, and bounded in every field."""

from collections.abc import Mapping
from typing import NotRequired, TypedDict, final


class SiteWait(TypedDict):
    """Neighbour that a site waits for."""

    agent: int
    seconds: float
    why: str


@final
class SiteStatus(TypedDict):
    """Position and state of a site; numbers are finite, and agents are members."""

    agent: int
    round: int
    rounds: int
    state: str
    waiting: list[SiteWait]
    away: list[int]
    connected: list[int]
    liars: NotRequired[list[int]]
    epsilon: NotRequired[float]
    budget: NotRequired[float]
    loss: NotRequired[float]
    pace: NotRequired[float]  # seconds of a round
    message: NotRequired[str]  # why the run has ended
    folder: NotRequired[str]


@final
class NoStatus(TypedDict):
    """Reason why a site has no status."""

    error: str


SiteStatuses = Mapping[str, SiteStatus | NoStatus]  # by site
