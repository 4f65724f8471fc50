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

from .errors import Refused
from .wire_format import Frame

MAX_QUEUED = 3  # maximum number of messages queued or in flight


class Subscription:
    """Receiving end of a subscription: messages of one neighbour from exchange `next_tick` on.

    With `keeps_latest`, a message that has not been read is replaced by the next one.
    """

    def __init__(self, first: int, keeps_latest: bool = False):
        self.next_tick, self.ended, self.keeps_latest = first, False, keeps_latest
        self.error: Refused | None = None  # permanent error
        self._queue: deque[Any] = deque()
        self._has_changed = asyncio.Event()

    def receive(self, content: Any) -> bool:
        """Receive a message, dropped if the subscription has ended; False if there are too many."""
        if self.ended:
            return True
        if self.keeps_latest:
            self._queue.clear()
        if len(self._queue) >= MAX_QUEUED:
            self.end()
            return False
        self._queue.append(content)
        self._has_changed.set()
        return True

    def end(self, error: Refused | None = None) -> None:
        """End the subscription."""
        self.ended, self.error = True, self.error or error
        self._has_changed.set()

    async def next_message(self, seconds: float) -> Any:
        """Return the next message; None if the subscription failed or `seconds` passed."""
        if not self._queue and not self.ended:
            self._has_changed.clear()
            timer = asyncio.get_running_loop().call_later(seconds, self.end)
            try:
                await self._has_changed.wait()
            finally:
                timer.cancel()
        if self._queue:
            self.next_tick += 1
            return self._queue.popleft()
        if self.error is not None:
            raise self.error
        return None


class Publisher:
    """Sending end of a subscription: messages from exchange `next_tick` on go out by `send`.

    `send` returns whether the message is on its way; `refuse` sends the last response.
    """

    def __init__(self, first: int):
        self.next_tick = first
        self.send: Callable[[Frame], bool] = lambda content: False
        self.refuse: Callable[[Refused], object] = lambda cause: None
        self.on_opened: Callable[[], None] = lambda: None  # called when the connection exists
