"""Time limits and retries of a node that waits for a neighbour."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from .errors import Unreachable
from .wire_format import FrameError

T = TypeVar("T")
RETRY_PAUSES = 0.05, 2.0  # seconds between two attempts: the first, and the longest pause


class NeighbourTimeout(TimeoutError):
    """Error: the wait for a neighbour exceeded its limit."""


@dataclass(frozen=True)
class Timeouts:
    """Limits in seconds: for one attempt to reach a neighbour, its response, and total silence."""

    connect: float = 10.0
    round: float = 120.0
    give_up: float = 24 * 3600.0


@dataclass
class WaitRecord:
    """Waiting time of an agent for one neighbour."""

    seconds: float = 0.0
    attempts: int = 0
    last_error: str = ""  # why the last attempt failed


def loop_time() -> float:
    """Return the time of the running event loop, which may be simulated."""
    return asyncio.get_running_loop().time()


async def retry_until_answered(
    attempt: Callable[[], Awaitable[T | None]],
    description: str,
    timeouts: Timeouts,
    record: WaitRecord,
    *,
    on_silence: Callable[[], None] | None = None,
) -> T:
    """Retry until there is a response or a refusal, or the time limit is exceeded.

    The response None requests another attempt. `on_silence` is called whenever there was no
    response for the time limit of one; it raises if that is not acceptable.
    """
    start_time, pause = loop_time(), RETRY_PAUSES[0]
    last_response = start_time
    while True:
        record.attempts += 1
        try:
            async with asyncio.timeout(timeouts.round):
                answer = await attempt()
            if answer is not None:
                record.seconds += loop_time() - start_time
                record.last_error = ""
                return answer
            record.last_error = "it is not so far yet"
            pause, last_response = RETRY_PAUSES[0], loop_time()
        except TimeoutError:
            record.last_error = f"no answer within {timeouts.round:g} s"
        except (Unreachable, FrameError) as cause:
            record.last_error = str(cause)
        if on_silence and loop_time() - last_response >= timeouts.round:
            on_silence()
        waited = loop_time() - start_time
        if waited >= timeouts.give_up:
            raise NeighbourTimeout(
                f"waited {waited:.0f} s for the {description} ({record.last_error}); start this "
                f"agent again once the other is back, and it continues from its checkpoint"
            )
        left = last_response + timeouts.round - loop_time()
        await asyncio.sleep(min(pause, left) if on_silence and left > 0 else pause)
        pause = min(2 * pause, RETRY_PAUSES[1])
