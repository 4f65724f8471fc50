"""Work beside the messages: background tasks, and blocking work on a thread or inline."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

import jax

BlockingRunner = Callable[..., Awaitable[Any]]  # runs a blocking function
BRIEF_SECONDS = 0.02  # seconds that the event loop may be blocked


class BackgroundTasks(set[asyncio.Task[Any]]):
    """Tasks of one owner that have not ended yet."""

    def start(self, work: Awaitable[Any]) -> asyncio.Task[Any]:
        """Start a task."""
        task = asyncio.ensure_future(work)
        self.add(task)
        task.add_done_callback(self.discard)
        return task

    def cancel(self) -> None:
        """Cancel all tasks, at the end of their owner."""
        for task in list(self):
            task.cancel()


async def run_in_thread(function: Callable[..., Any], *args: Any) -> Any:
    """Run function(*args) on a thread with the precision of this one (JAX sets it per thread)."""
    wide = jax.config.jax_enable_x64  # type: ignore[attr-defined, unused-ignore]

    def call() -> Any:
        with jax.enable_x64(wide):
            return function(*args)

    return await asyncio.to_thread(call)


class BriefWorkRunner:
    """Runner that executes brief work inline, since a thread would cost more.

    Only functions in `names` whose last call was brief run inline; the first call, which may
    compile, and all other work run on a thread.
    """

    def __init__(self, names: tuple[str, ...]) -> None:
        self.last_seconds = dict.fromkeys(names, BRIEF_SECONDS)  # seconds of the last call

    async def __call__(self, function: Callable[..., Any], *args: Any) -> Any:
        """Run function(*args)."""
        name = getattr(function, "__name__", "")
        if name not in self.last_seconds:
            return await run_in_thread(function, *args)
        if self.last_seconds[name] < BRIEF_SECONDS:
            return self._timed(name, function, *args)
        return await run_in_thread(self._timed, name, function, *args)

    def _timed(self, name: str, function: Callable[..., Any], *args: Any) -> Any:
        start = time.perf_counter()
        try:
            return function(*args)
        finally:
            self.last_seconds[name] = time.perf_counter() - start
