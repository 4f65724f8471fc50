"""A standing order: a neighbour's messages come as soon as they are there, without being asked for.

Asking stays the rule. Two who have greeted each other order what is to come; whenever an order
comes to nothing (a connection is lost, nothing came for long, what came cannot be read), the
message is asked for, and those after it are ordered anew. So nothing depends on an order but speed.

Two agents are never more than an exchange apart, so that few messages are ever on their way; who
is sent more than that breaks the order, and who reads more slowly than that loses it.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any

from .errors import Refused
from .frame import Frame

AHEAD = 3  # messages that may lie at the one end, or be on their way from the other


class Following:
    """The end that ordered: the messages of one neighbour from exchange `next` on."""

    def __init__(self, first: int):
        self.next, self.ended = first, False
        self.fault: Refused | None = None  # for good
        self._came: deque[Any] = deque()
        self._news: asyncio.Future[None] | None = None

    def heard(self, content: Any) -> bool:
        """One more message, for which nobody waits any more once this has ended; False if there
        are too many."""
        if self.ended:
            return True
        if len(self._came) >= AHEAD:
            self.end()
            return False
        self._came.append(content)
        self._wake()
        return True

    def end(self, fault: Refused | None = None) -> None:
        """Nothing more will come."""
        self.ended, self.fault = True, self.fault or fault
        self._wake()

    def _wake(self) -> None:
        if self._news is not None and not self._news.done():
            self._news.set_result(None)

    async def take(self, seconds: float) -> Any:
        """The next message; None if the order has come to nothing, or nothing came for so long."""
        if not self._came and not self.ended:
            loop = asyncio.get_running_loop()
            self._news = loop.create_future()
            patience = loop.call_later(seconds, self.end)
            try:
                await self._news
            finally:
                patience.cancel()
                self._news = None
        if self._came:
            self.next += 1
            return self._came.popleft()
        if self.fault is not None:
            raise self.fault
        return None


class Feed:
    """The end that was ordered from: what is told from exchange `next` on goes out by `send`.

    `send` says whether the message is on its way; `refuse` is the last that is said.
    """

    def __init__(self, first: int):
        self.next = first
        self.send: Callable[[Frame], bool] = lambda content: False
        self.refuse: Callable[[Refused], None] = lambda cause: None
        self.opened: Callable[[], None] = lambda: None  # there is a way now
