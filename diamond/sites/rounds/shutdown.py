"""Graceful shutdown of an agent at its operator's request; the agent can resume."""

import asyncio
from collections.abc import Awaitable
from typing import Any, TypeVar

T = TypeVar("T")


class Halted(Exception):
    """Error: the agent has stopped at the operator's request."""


class Shutdown:
    """Stop request of the operator; pending work gets `grace` seconds to finish."""

    def __init__(self, grace: float):
        self.grace, self.requested = grace, False
        self._work: asyncio.Task[Any] | None = None  # pending work
        self._cancelled = False

    def request(self) -> None:
        """Request a stop after the pending work."""
        if not self.requested:
            self.requested = True
            self._schedule_cancel()

    async def run_or_halt(self, work: Awaitable[T]) -> T:
        """Return the result of the work; raise `Halted` and cancel it if it takes too long."""
        self._work = asyncio.current_task()
        if self.requested:
            self._schedule_cancel()
        try:
            return await work
        except asyncio.CancelledError:
            if self._cancelled and self._work is not None and not self._work.uncancel():
                raise Halted from None
            raise
        finally:
            self._work, self._cancelled = None, False

    def _schedule_cancel(self) -> None:
        if self._work is not None:
            asyncio.get_running_loop().call_later(self.grace, self._cancel, self._work)

    def _cancel(self, work: "asyncio.Task[Any]") -> None:
        if self._work is work:
            self._cancelled = True
            work.cancel()
