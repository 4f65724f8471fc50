"""Stopping an agent when its operator asks, in a state that it goes on from."""

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

T = TypeVar("T")


class Halted(Exception):
    """The agent has stopped because it was asked to."""


class Shutdown:
    """Whether the operator has asked; what is under way gets `grace` seconds to end by itself."""

    def __init__(self, grace: float):
        self.grace, self._asked = grace, asyncio.Event()

    @property
    def asked(self) -> bool:
        """Whether to stop."""
        return self._asked.is_set()

    def ask(self) -> None:
        """Stop after what is under way."""
        self._asked.set()

    async def unless(self, work: Awaitable[T]) -> T:
        """What the work comes to; `Halted`, with the work undone, if it waits for too long."""
        task, asked = asyncio.ensure_future(work), asyncio.ensure_future(self._asked.wait())
        try:
            await asyncio.wait([task, asked], return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                await asyncio.wait([task], timeout=self.grace)
            if not task.done():
                raise Halted
            return await task
        finally:
            asked.cancel()
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)  # what it holds, it lets go of
