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
        self.grace, self.asked = grace, False
        self._work: asyncio.Task[Any] | None = None  # pending work
        self._cut = False

    def ask(self) -> None:
        """Request a stop after the pending work."""
        if not self.asked:
            self.asked = True
            self._soon()

    async def unless(self, work: Awaitable[T]) -> T:
        """Return the result of the work; raise `Halted` and cancel it if it takes too long."""
        self._work = asyncio.current_task()
        if self.asked:
            self._soon()
        try:
            return await work
        except asyncio.CancelledError:
            if self._cut and self._work is not None and not self._work.uncancel():
                raise Halted from None
            raise
        finally:
            self._work, self._cut = None, False

    def _soon(self) -> None:
        if self._work is not None:
            asyncio.get_running_loop().call_later(self.grace, self._stop, self._work)

    def _stop(self, work: "asyncio.Task[Any]") -> None:
        if self._work is work:
            self._cut = True
            work.cancel()
