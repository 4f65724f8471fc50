"""Stopping an agent when its operator asks, in a state that it goes on from."""

import asyncio
from collections.abc import Awaitable
from typing import Any, TypeVar

T = TypeVar("T")


class Halted(Exception):
    """The agent has stopped because it was asked to."""


class Shutdown:
    """Whether the operator has asked; what is under way gets `grace` seconds to end by itself."""

    def __init__(self, grace: float):
        self.grace, self.asked = grace, False
        self._work: asyncio.Task[Any] | None = None  # that is under way
        self._cut = False

    def ask(self) -> None:
        """Stop after what is under way."""
        if not self.asked:
            self.asked = True
            self._soon()

    async def unless(self, work: Awaitable[T]) -> T:
        """What the work comes to; `Halted`, with the work undone, if it waits for too long."""
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
