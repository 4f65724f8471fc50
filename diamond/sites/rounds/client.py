"""Requests of an agent to its neighbours, repeated until they are answered."""

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol

from ..memory.outbox import Receipt, read_receipts
from ..memory.sent_record import frame_tag
from ..memory.site_checkpoint import OtherRun
from ..memory.site_rollback import MESSAGE_STEPS, NeighbourRolledBack
from ..transport import messages, wire_format
from ..transport.errors import Refused, RunMismatch, Unreachable
from ..transport.messages import RoundRequest
from ..transport.subscription import Subscription
from ..transport.timeouts import WaitRecord, retry_until_answered
from ..transport.wire_format import Envelope, Frame, FrameError, Layout
from ..transport.worker_thread import BackgroundTasks
from .edge_states import EdgeStates
from .latest_messages import LatestMessages
from .node_status import NeighbourStatus

if TYPE_CHECKING:
    from .node import Node

MAX_NOTICE_BYTES = 1024  # a rollback notice is shorter


class Transport(Protocol):
    """Carrier of requests to neighbours and of their responses: implement it for another engine.

    The receiving end passes each request to `Node.answer_request` of the neighbour, with the number
    of the sender that its key has proved, and carries the result back: a frame is the response, a
    `Publisher` serves a subscription, a `Refused` is raised at the sender with its class and text,
    and a `FrameError` is `Unreachable` there. Requests and responses may be lost, repeated or
    overtake each other. Frames have at most `max_frame_bytes(agent.largest_layout)` bytes, and only
    the two sites may read them. `InProcessTransport` is a small example; `RpcClient` and `Server`
    connect real sites.
    """

    async def send_request(self, neighbour: int, request: Frame) -> Frame:
        """Send a request once and return its response, which nobody modifies later.

        Raises the `Refused` of the neighbour, or `Unreachable` if there is no response within a
        time limit, for any reason that may pass: the node repeats the request.
        """
        ...

    def subscribe(self, neighbour: int, request: Frame, subscription: Subscription) -> None:
        """Send a request, return immediately, and pass the messages that answer it.

        The receiving end sets `send` and `refuse` of the `Publisher`, then says to the `Publisher`
        that the connection exists. Each message goes to `subscription.receive`, in the order of
        sending and without gaps. Call `subscription.end`, with the `Refused` of the neighbour if
        there is one, as soon as no more messages will come or `receive` returns False: the node
        then requests them. A transport without streams ends every subscription immediately. Another
        subscription to the same neighbour replaces the earlier one.
        """
        ...


class NeighbourClient:
    """Client of all neighbours of a node; `Service` is the other side.

    `wait_records` has the waiting time for each neighbour, `neighbour_status` its last message.
    """

    def __init__(self, node: "Node"):
        agent, self.digests, self.transport = node.agent, node.digests, node.transport
        self.agent, self.timeouts, self.service = agent, node.timeouts, node.service
        self.last_tick, self.clock = node.last_tick, node.clock
        self.sent, self.signatures = node.sent, node.signatures
        self.first_tick = 0  # first tick of this session
        self.wait_records = {j: WaitRecord() for j in agent.neighbours}
        self.neighbour_status = {j: NeighbourStatus() for j in agent.neighbours}
        self._subscriptions: dict[int, Subscription] = {}
        self._notices = BackgroundTasks()

    async def fetch_message(
        self, j: int, t: int, consensus_step: int = 0, layout: Layout | None = None
    ) -> list[Any]:
        """Return the message of j in exchange t, or about numbers before it."""
        round = self.clock.round_of(t)
        if not consensus_step and (message := await self._next_subscribed(j, t)) is not None:
            self.neighbour_status[j].round = round
            return message
        kind = "message of" if consensus_step in MESSAGE_STEPS else "measurements before"
        description = f"{kind} round {round}"
        if t == self.last_tick and not consensus_step:
            description = "word that it has finished"

        async def attempt() -> list[Any] | None:
            answer = await self.request_once(j, messages.MessageRequest, t, consensus_step)
            return self.decode_message(j, t, answer, consensus_step, layout) if answer else None

        with self.neighbour_status[j].mark_awaited():
            description += f" of {self.service.site_name(j)}"
            message = await retry_until_answered(
                attempt, description, self.timeouts, self.wait_records[j]
            )
        self.neighbour_status[j].round = round
        if not consensus_step and self.service.edges is None and t + 1 < self.last_tick:
            self.subscribe(j, t + 1)
        return message

    def subscribe(self, j: int, t: int) -> Subscription:
        """Subscribe to the messages of j from exchange t on, or to its latest ones."""
        if (earlier := self._subscriptions.get(j)) is not None:
            earlier.end()
        keeps_latest = self.service.outbox.keeps_latest
        subscription = self._subscriptions[j] = Subscription(t, keeps_latest)
        request = self._encode_request(messages.SubscriptionRequest, t)
        self.transport.subscribe(j, request, subscription)
        return subscription

    def is_subscribed(self, j: int, t: int) -> bool:
        """Return whether a subscription delivers j's message of exchange t; not the last one."""
        subscription = self._subscriptions.get(j)
        return subscription is not None and subscription.next_tick == t < self.last_tick

    async def _next_subscribed(self, j: int, t: int) -> list[Any] | None:
        """Return that message from the subscription; None if it must be requested."""
        if not self.is_subscribed(j, t):
            return None
        with self.neighbour_status[j].mark_awaited():
            content = await self._subscriptions[j].next_message(self.timeouts.round / 2)
        try:
            if content is not None:
                return self.decode_message(j, t, content)
        except FrameError as cause:
            self.wait_records[j].last_error = str(cause)
        self._subscriptions.pop(j).end()
        return None

    def report_durable(self) -> None:
        """Tell the subscribed neighbours which rounds this agent may request again."""
        for j, subscription in self._subscriptions.items():
            tick = max(subscription.next_tick, self.service.durable)
            self._notices.start(self._report_durable_to(j, tick))

    async def _report_durable_to(self, j: int, t: int) -> None:
        with suppress(Unreachable, Refused, FrameError):  # the next request repeats it
            await self.request_once(j, messages.DurableReport, min(t, self.last_tick))

    def close(self) -> None:
        """Cancel pending requests."""
        for subscription in self._subscriptions.values():
            subscription.end()
        self._notices.cancel()

    async def request_once(
        self, j: int, kind: type[RoundRequest], t: int, consensus_step: int = 0
    ) -> Frame:
        """Try once to get the message or edge vote of j; empty if it does not exist yet."""
        return await self.transport.send_request(j, self._encode_request(kind, t, consensus_step))

    def _encode_request(self, kind: type[RoundRequest], t: int, consensus_step: int = 0) -> Frame:
        return kind(
            self.digests["run"], self.agent.number, t, self.service.durable, consensus_step
        ).encode()

    def decode_message(
        self,
        j: int,
        t: int,
        message: Frame,
        consensus_step: int = 0,
        layout: Layout | None = None,
        is_stored: bool = False,
    ) -> list[Any]:
        """Decode a message of j; raises `NeighbourRolledBack` if it is a rollback notice.

        `is_stored` if this agent has accepted it before, and has it on its disk.
        """
        envelope = Envelope(self.digests["run"], j, t, consensus_step)
        notice = messages.RollbackNotice(*envelope)
        if len(message) < MAX_NOTICE_BYTES and message == notice.encode():
            if not self.clock.can_roll_back:
                raise FrameError("a notice of a rollback, which this run excludes")
            if (subscription := self._subscriptions.pop(j, None)) is not None:
                subscription.end()
            raise NeighbourRolledBack
        is_last = t == self.last_tick and not consensus_step
        expected = () if is_last else self.agent.layout_at(t) if layout is None else layout
        if self.signatures is not None:
            return self.signatures.decode(message, envelope, expected, is_stored)
        arrays = wire_format.decode(message, envelope, expected)
        if not self.clock.negotiates(t):
            receipt = Receipt(t, consensus_step, frame_tag(message))
            self.service.outbox.receipts.record(j, receipt)
        return arrays

    async def greet_neighbours(self, edges: EdgeStates | LatestMessages | None) -> None:
        """Compare the run with every neighbour that has not finished.

        An agent that differs from all neighbours gets the differences and stops. An agent that
        agrees with one of them waits until the others are restarted.
        """
        others = [j for j in self.agent.neighbours if j not in self.service.finished]
        mismatches: dict[int, str] = {}

        async def attempt(j: int) -> bool | None:
            try:
                has_answered = await self.greet(j)
            except RunMismatch as cause:
                mismatches[j] = str(cause)
                if len(mismatches) < len(others):
                    raise Unreachable(f"{cause}; waiting until it is started again") from None
                raise RunMismatch(
                    f"{self.service.site_name(self.agent.number)} runs something else than all its "
                    f"neighbours: {'; '.join(mismatches[k] for k in others)}; start it again with "
                    f"what they run"
                ) from None
            except Unreachable as cause:
                mismatch = self.service.mismatches.get(j)
                raise Unreachable(
                    f"{cause}; it ran something else: {mismatch}" if mismatch else str(cause)
                ) from None
            mismatches.pop(j, None)
            return has_answered

        async def greet_until_answered(j: int) -> None:
            with self.neighbour_status[j].mark_awaited():
                if edges:
                    return await edges.greet_neighbour(j)
                description = f"greeting of {self.service.site_name(j)}"
                await retry_until_answered(
                    lambda: attempt(j), description, self.timeouts, self.wait_records[j]
                )
                if self.service.edges is None and self.first_tick < self.last_tick:
                    self.subscribe(j, self.first_tick)

        await gather_or_cancel(greet_until_answered(j) for j in others)

    async def greet(self, j: int) -> bool | None:
        """Try once to greet j, and learn which messages of this agent j holds.

        Return None if j is still in an earlier epoch.
        """
        if self.service.offer_roster is not None:
            await self.service.offer_roster(j)
        first, has_more = (self.first_tick, 0), True
        while has_more:
            answer = await self._send_greeting(j, first)
            if answer is None:
                return None
            receipts = read_receipts(answer.receipts or [], first)
            for receipt in receipts:
                if self.signatures is None or self.signatures.has_signed(j, receipt):
                    name = self.service.site_name(j)
                    self.sent.add_report(name, *receipt.place, receipt.digest)
                first = receipt.exchange, receipt.consensus_step + 1
            has_more = bool(receipts) and answer.more is True
        return True

    async def _send_greeting(
        self, j: int, first: tuple[int, int]
    ) -> messages.GreetingAnswer | None:
        """Return the answer of j, with some receipts of messages from `first` on."""
        limit, parts = float(self.timeouts.round), dict(self.digests)
        greeting = messages.Greeting(self.agent.number, parts, limit, first)
        response = await self.transport.send_request(j, greeting.encode())
        if not len(response):
            return None
        answer = messages.GreetingAnswer.read(response)
        if not (
            0 <= answer.durable <= self.last_tick and 0 <= answer.first_stored <= self.last_tick
        ):
            raise FrameError("a greeting without the first message that is kept")
        if answer.first_stored > max(self.first_tick, self.service.durable):
            restored, reached = map(self.clock.round_of, (self.first_tick, answer.first_stored))
            raise OtherRun(
                f"the folder of {self.service.site_name(self.agent.number)} leads to round "
                f"{restored}, but it has been at round {reached}, and {self.service.site_name(j)} "
                f"keeps messages from there on: restore the folder from a newer copy, or "
                f"{self.sent.remedy}"
            )
        self.service.outbox.record_durable(j, answer.durable)
        return answer

    async def await_all_finished(self, edges: EdgeStates | None) -> None:
        """Wait until every neighbour has finished and knows that this agent has."""
        await gather_or_cancel(self._await_finished(j, edges) for j in self.agent.neighbours)

    async def _await_finished(self, j: int, edges: EdgeStates | None) -> None:
        """Wait until j responds that it has finished, or has asked as a finished agent.

        Its response implies that it knows about this agent. Its request does not, so j may ask
        again for as long as an attempt takes.
        """

        async def await_its_request() -> None:
            await self.service.await_finished(j)
            await asyncio.sleep(self.timeouts.connect)

        async def request_its_finish() -> None:
            if edges:
                return await edges.await_finish(j, self.last_tick)
            await self.fetch_message(j, self.last_tick)
            await self.service.record_finished(j)

        tasks = [asyncio.ensure_future(await_its_request())]
        tasks.append(asyncio.ensure_future(request_its_finish()))
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in tasks:
                task.cancel()


async def gather_or_cancel(coroutines: Any) -> list[Any]:
    """Gather results as `asyncio.gather`, but cancel the others if one fails."""
    tasks = [asyncio.ensure_future(coroutine) for coroutine in coroutines]
    try:
        return list(await asyncio.gather(*tasks))
    finally:
        for task in tasks:
            task.cancel()
