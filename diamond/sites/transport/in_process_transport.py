"""All agents of a network in one process on a simulated clock, for rehearsals and tests.

The wire carries the same bytes as a real one. Time passes only when every task is idle, so a run
with hours of waiting takes only its computing time, and is deterministic.
"""

import asyncio
import selectors
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple, TypeVar

from ..rounds.node import Node
from .errors import Refused, Unreachable
from .subscription import Publisher, Subscription
from .wire_format import Frame, FrameError
from .worker_thread import BackgroundTasks

T = TypeVar("T")


class Hop(NamedTuple):
    """One direction of a call: a request to `receiver`, or its response to `sender`."""

    sender: int  # caller
    receiver: int  # callee
    is_response: bool
    number: int  # of the call, counted from 0


Fault = Callable[[Hop, Frame], Awaitable[Frame]]  # returns what arrives; may raise `Unreachable`


class InProcessNetwork:
    """Carrier of calls between running nodes, through faults if any."""

    def __init__(self, *faults: Fault, delay: float = 0.001):
        self.nodes: dict[int, Node] = {}
        self.faults, self.delay, self.calls = faults, delay, 0
        self.subscriptions = BackgroundTasks()  # active subscriptions

    def transport(self, agent: int) -> "InProcessTransport":
        """Return the transport of `agent`."""
        return InProcessTransport(self, agent)

    def close(self) -> None:
        """Cancel all subscriptions before the loop closes."""
        self.subscriptions.cancel()

    async def deliver(self, hop: Hop, content: Frame) -> Frame:
        """Return what arrives of `content`."""
        await asyncio.sleep(self.delay)
        for fault in self.faults:
            content = await fault(hop, content)
        return content

    def next_hop(self, sender: int, receiver: int) -> Hop:
        """Return the request of the next call."""
        self.calls += 1
        return Hop(sender, receiver, False, self.calls - 1)


def _enqueue(queue: "asyncio.Queue[Any]", subscription: Subscription, content: Frame) -> bool:
    if not subscription.ended:
        queue.put_nowait(content)
    return not subscription.ended


class InProcessTransport(NamedTuple):
    """Transport of one agent."""

    network: InProcessNetwork
    agent: int

    async def send_request(self, neighbour: int, request: Frame) -> Frame:
        network, sent = self.network, self.network.next_hop(self.agent, neighbour)
        request = await network.deliver(sent, request)
        node = network.nodes.get(neighbour)
        if node is None:
            raise Unreachable(f"agent {neighbour} is down")
        try:
            response = await node.answer_request(self.agent, request)
        except FrameError as cause:
            raise Unreachable(f"agent {neighbour} could not read the request: {cause}") from None
        if network.nodes.get(neighbour) is not node:
            raise Unreachable(f"agent {neighbour} went down")
        assert not isinstance(response, Publisher)
        return await network.deliver(sent._replace(is_response=True), response)

    def subscribe(self, neighbour: int, request: Frame, subscription: Subscription) -> None:
        self.network.subscriptions.start(self._receive(neighbour, request, subscription))

    async def _receive(self, neighbour: int, request: Frame, subscription: Subscription) -> None:
        """Receive the messages of a subscription, in order."""
        network, sent = self.network, self.network.next_hop(self.agent, neighbour)
        queue: asyncio.Queue[Frame | Refused] = asyncio.Queue()
        try:
            request = await network.deliver(sent, request)
            if (node := network.nodes.get(neighbour)) is None:
                return
            publisher = await node.answer_request(self.agent, request)
            assert isinstance(publisher, Publisher)
            publisher.send = partial(_enqueue, queue, subscription)
            publisher.refuse = queue.put_nowait
            publisher.on_opened()
            while not subscription.ended and network.nodes.get(neighbour) is node:
                content = await queue.get()
                if isinstance(content, Refused):
                    return subscription.end(content)
                content = await network.deliver(sent._replace(is_response=True), content)
                if network.nodes.get(neighbour) is node:
                    subscription.receive(content)
        except (Refused, Unreachable, FrameError):
            pass  # the following request reports the cause
        finally:
            subscription.end()


async def run_inline(function: Callable[..., T], *args: Any) -> T:
    """Run a function directly, while nothing else happens."""
    return function(*args)


class _SimulatedSelector(selectors.SelectSelector):
    """Selector that advances the clock instead of waiting."""

    now = 0.0

    def select(self, timeout: float | None = None) -> Any:
        if timeout is None:
            raise RuntimeError("every agent waits for something that cannot happen any more")
        self.now += max(0.0, timeout)
        return super().select(0)


class _SimulatedLoop(asyncio.SelectorEventLoop):
    """Event loop on the simulated clock."""

    def __init__(self) -> None:
        self.selector = _SimulatedSelector()
        super().__init__(self.selector)

    def time(self) -> float:
        return self.selector.now


def run_simulated(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end on a simulated clock, in a thread if a loop runs in this one."""

    def run() -> T:
        with asyncio.Runner(loop_factory=_SimulatedLoop) as runner:
            return runner.run(work)

    try:
        asyncio.get_running_loop()  # that of a notebook
    except RuntimeError:
        return run()
    with ThreadPoolExecutor(1) as executor:
        return executor.submit(run).result()
