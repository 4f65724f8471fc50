"""How long a node waits for a neighbour, and how it says so."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from .errors import Unreachable
from .frame import FrameError

T = TypeVar("T")
PAUSES = 0.05, 2.0  # seconds between two tries: the first, and the longest


class GaveUp(TimeoutError):
    """The wait for a neighbour was longer than allowed."""


@dataclass(frozen=True)
class Limits:
    """Seconds: for one try to reach a neighbour, for its answer, and without any news at all."""

    connect: float = 10.0
    round: float = 120.0
    give_up: float = 24 * 3600.0


@dataclass
class Wait:
    """What an agent has waited for one neighbour."""

    seconds: float = 0.0
    tries: int = 0
    last: str = ""  # why the last try came to nothing


async def insist(
    attempt: Callable[[], Awaitable[T | None]],
    whose: str,
    limits: Limits,
    wait: Wait,
    silent: Callable[[], None] | None = None,
) -> T:
    """Try again and again until there is an answer, a refusal, or no more patience.

    None is an answer that calls for another try. `silent` is called whenever there has been no
    answer at all for as long as one may take; it raises if that is not to be borne.
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
