"""Subscriptions: a neighbour sends its messages as soon as they exist, without requests.

Requests remain the rule. After a greeting, two agents subscribe to each other's messages. If a
subscription fails (a lost connection, a long silence, an unreadable message), the message is
requested and the later ones are subscribed to again. Only speed depends on subscriptions.

Two agents are never more than one exchange apart, so few messages are in flight. A sender of more
messages breaks the subscription, and a receiver that reads more slowly loses it.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any

from .call_errors import Refused
from .wire_format import Frame

AHEAD = 3  # maximum number of messages queued or in flight


class Following:
    """Receiving end of a subscription: messages of one neighbour from exchange `next` on."""

    def __init__(self, first: int):
        self.next, self.ended = first, False
        self.fault: Refused | None = None  # permanent error
        self._came: deque[Any] = deque()
        self._news: asyncio.Future[None] | None = None

    def heard(self, content: Any) -> bool:
        """Receive a message, dropped if the subscription has ended; False if there are too many."""
        if self.ended:
            return True
        if len(self._came) >= AHEAD:
            self.end()
            return False
        self._came.append(content)
        self._wake()
        return True

    def end(self, fault: Refused | None = None) -> None:
        """End the subscription."""
        self.ended, self.fault = True, self.fault or fault
        self._wake()

    def _wake(self) -> None:
        if self._news is not None and not self._news.done():
            self._news.set_result(None)

    async def take(self, seconds: float) -> Any:
        """Return the next message; None if the subscription failed or `seconds` passed."""
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
    """Sending end of a subscription: messages from exchange `next` on go out by `send`.

    `send` returns whether the message is on its way; `refuse` sends the last response.
    """

    def __init__(self, first: int):
        self.next = first
        self.send: Callable[[Frame], bool] = lambda content: False
        self.refuse: Callable[[Refused], None] = lambda cause: None
        self.opened: Callable[[], None] = lambda: None  # called when the connection exists
