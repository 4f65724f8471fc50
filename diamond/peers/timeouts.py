"""Time limits and retries of a node that waits for a neighbour."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from .call_errors import Unreachable
from .wire_format import FrameError

T = TypeVar("T")
PAUSES = 0.05, 2.0  # seconds between two attempts: the first, and the longest pause


class GaveUp(TimeoutError):
    """Error: the wait for a neighbour exceeded its limit."""


@dataclass(frozen=True)
class Limits:
    """Limits in seconds: for one attempt to reach a neighbour, its response, and total silence."""

    connect: float = 10.0
    round: float = 120.0
    give_up: float = 24 * 3600.0


@dataclass
class Wait:
    """Waiting time of an agent for one neighbour."""

    seconds: float = 0.0
    tries: int = 0
    last: str = ""  # why the last attempt failed


async def insist(
    attempt: Callable[[], Awaitable[T | None]],
    whose: str,
    limits: Limits,
    wait: Wait,
    silent: Callable[[], None] | None = None,
) -> T:
    """Retry until there is a response or a refusal, or the time limit is exceeded.

    The response None requests another attempt. `silent` is called whenever there was no response
    for the time limit of one; it raises if that is not acceptable.
    """
    clock = asyncio.get_running_loop().time
    begun, pause = clock(), PAUSES[0]
    alive = begun
    while True:
        wait.tries += 1
        try:
            async with asyncio.timeout(limits.round):
                answer = await attempt()
            if answer is not None:
                wait.seconds += clock() - begun
                wait.last = ""
                return answer
            wait.last, pause, alive = "it is not so far yet", PAUSES[0], clock()
        except TimeoutError:
            wait.last = f"no answer within {limits.round:g} s"
        except (Unreachable, FrameError) as cause:
            wait.last = str(cause)
        if silent and clock() - alive >= limits.round:
            silent()
        waited = clock() - begun
        if waited >= limits.give_up:
            raise GaveUp(
                f"waited {waited:.0f} s for the {whose} ({wait.last}); start this agent again once "
                f"the other is back, and it goes on from its checkpoint"
            )
        left = alive + limits.round - clock()
        await asyncio.sleep(min(pause, left) if silent and left > 0 else pause)
        pause = min(2 * pause, PAUSES[1])
