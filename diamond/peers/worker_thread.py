"""Work beside the messages: on a thread of its own, or at once where that takes a moment."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

import jax

Work = Callable[..., Awaitable[Any]]  # runs a blocking function
BRIEF = 0.02  # seconds in which nobody misses the event loop


async def threaded(function: Callable[..., Any], *given: Any) -> Any:
    """function(*given) on a thread, in the precision of this one: JAX keeps it for each thread."""
    wide = jax.config.jax_enable_x64  # type: ignore[attr-defined]

    def work() -> Any:
        with jax.enable_x64(wide):
            return function(*given)

    return await asyncio.to_thread(work)


class Brisk:
    """Work that took a moment the last time is done at once: a thread would cost more than it.

    Only functions of those `names`; the first time, when they may have to be compiled, and whatever
    else blocks go to a thread.
    """

    def __init__(self, names: tuple[str, ...]) -> None:
        self.took = dict.fromkeys(names, BRIEF)  # seconds, the last time

    async def __call__(self, function: Callable[..., Any], *given: Any) -> Any:
        """function(*given)."""
        name = getattr(function, "__name__", "")
        if name not in self.took:
            return await threaded(function, *given)
        if self.took[name] < BRIEF:
            return self._timed(name, function, *given)
        return await threaded(self._timed, name, function, *given)

    def _timed(self, name: str, function: Callable[..., Any], *given: Any) -> Any:
        begun = time.perf_counter()
        try:
            return function(*given)
        finally:
            self.took[name] = time.perf_counter() - begun
