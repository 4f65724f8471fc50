"""Blocking work beside the messages: on a thread, or inline if it is brief."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

import jax

Work = Callable[..., Awaitable[Any]]  # runs a blocking function
BRIEF = 0.02  # seconds that the event loop may be blocked


async def threaded(function: Callable[..., Any], *given: Any) -> Any:
    """Run function(*given) on a thread with the precision of this one (JAX sets it per thread)."""
    wide = jax.config.jax_enable_x64  # type: ignore[attr-defined]

    def work() -> Any:
        with jax.enable_x64(wide):
            return function(*given)

    return await asyncio.to_thread(work)


class Brisk:
    """Runner that executes brief work inline, since a thread would cost more.

    Only functions in `names` whose last call was brief run inline; the first call, which may
    compile, and all other work run on a thread.
    """

    def __init__(self, names: tuple[str, ...]) -> None:
        self.took = dict.fromkeys(names, BRIEF)  # seconds of the last call

    async def __call__(self, function: Callable[..., Any], *given: Any) -> Any:
        """Run function(*given)."""
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
