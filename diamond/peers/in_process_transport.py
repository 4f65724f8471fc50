"""All agents of a network in one process on a simulated clock, for rehearsals and tests.

The wire carries the same bytes as a real one. Time passes only when every task is idle, so a run
with hours of waiting takes only its computing time, and is deterministic.
"""

import asyncio
import selectors
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any, NamedTuple, TypeVar

from .call_errors import Refused, Unreachable
from .node import Node
from .subscription import Feed, Following
from .wire_format import Frame, FrameError

T = TypeVar("T")


class Hop(NamedTuple):
    """One direction of a call: a request to `receiver`, or its response to `sender`."""

    sender: int  # caller
    receiver: int  # callee
    back: bool  # whether this is the response
    number: int  # of the call, counted from 0


Fault = Callable[[Hop, Frame], Awaitable[Frame]]  # returns what arrives; may raise `Unreachable`


class Wire:
    """Carrier of calls between running nodes, through faults if any."""

    def __init__(self, *faults: Fault, delay: float = 0.001):
        self.nodes: dict[int, Node] = {}
        self.faults, self.delay, self.calls = faults, delay, 0
        self.orders: set[asyncio.Task[None]] = set()  # active subscriptions

    def end(self, agent: int) -> "End":
        """Return the transport of `agent`."""
        return End(self, agent)

    def close(self) -> None:
        """Cancel all subscriptions before the loop closes."""
        for order in self.orders:
            order.cancel()

    async def carry(self, hop: Hop, content: Frame) -> Frame:
        """Return what arrives of `content`."""
        await asyncio.sleep(self.delay)
        for fault in self.faults:
            content = await fault(hop, content)
        return content

    async def call(self, sender: int, receiver: int, request: Frame) -> Frame:
        """Send a request and return its response."""
        number, self.calls = self.calls, self.calls + 1
        request = await self.carry(Hop(sender, receiver, False, number), request)
        node = self.nodes.get(receiver)
        if node is None:
            raise Unreachable(f"agent {receiver} is down")
        try:
            answer = await node.answer(sender, request)
        except FrameError as cause:
            raise Unreachable(f"agent {receiver} could not read the request: {cause}") from None
        if self.nodes.get(receiver) is not node:
            raise Unreachable(f"agent {receiver} went down")
        assert not isinstance(answer, Feed)
        return await self.carry(Hop(sender, receiver, True, number), answer)

    def follow(self, sender: int, receiver: int, request: Frame, into: Following) -> None:
        """Start a subscription, whose messages arrive in order."""
        task = asyncio.ensure_future(self._follow(sender, receiver, request, into))
        self.orders.add(task)
        task.add_done_callback(self.orders.discard)

    async def _follow(self, sender: int, receiver: int, request: Frame, into: Following) -> None:
        number, self.calls = self.calls, self.calls + 1
        told: asyncio.Queue[Frame | Refused] = asyncio.Queue()
        try:
            request = await self.carry(Hop(sender, receiver, False, number), request)
            if (node := self.nodes.get(receiver)) is None:
                return
            feed = await node.answer(sender, request)
            assert isinstance(feed, Feed)
            feed.send, feed.refuse = partial(_put, told, into), told.put_nowait
            feed.opened()
            while not into.ended and self.nodes.get(receiver) is node:
                content = await told.get()
                if isinstance(content, Refused):
                    return into.end(content)
                content = await self.carry(Hop(sender, receiver, True, number), content)
                if self.nodes.get(receiver) is node:
                    into.heard(content)
        except (Refused, Unreachable, FrameError):
            pass  # the following request reports the cause
        finally:
            into.end()


def _put(queue: "asyncio.Queue[Any]", into: Following, content: Frame) -> bool:
    if not into.ended:
        queue.put_nowait(content)
    return not into.ended


class End(NamedTuple):
    """Transport of one agent."""

    wire: Wire
    agent: int

    async def call(self, neighbour: int, request: Frame) -> Frame:
        """See `Transport`."""
        return await self.wire.call(self.agent, neighbour, request)

    def follow(self, neighbour: int, request: Frame, into: Following) -> None:
        """See `Transport`."""
        self.wire.follow(self.agent, neighbour, request, into)


async def inline(function: Callable[..., T], *args: Any) -> T:
    """Run a function directly, while nothing else happens."""
    return function(*args)


class _Skip(selectors.SelectSelector):
    """Selector that advances the clock instead of waiting."""

    now = 0.0

    def select(self, timeout: float | None = None) -> Any:
        if timeout is None:
            raise RuntimeError("every agent waits for something that cannot happen any more")
        self.now += max(0.0, timeout)
        return super().select(0)


class _Loop(asyncio.SelectorEventLoop):
    """Event loop on the simulated clock."""

    def __init__(self) -> None:
        self.skip = _Skip()
        super().__init__(self.skip)

    def time(self) -> float:
        return self.skip.now


def play(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end on a simulated clock."""
    with asyncio.Runner(loop_factory=_Loop) as runner:
        return runner.run(work)
