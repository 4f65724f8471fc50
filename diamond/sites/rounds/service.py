"""Service of an agent: responses to its neighbours' requests."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..identity.handshake import describe_differences, installed_versions
from ..identity.site_names import site_name
from ..memory import site_checkpoint
from ..memory.outbox import MessageDiscarded, Outbox
from ..transport import messages, wire_format
from ..transport.audit import Audit
from ..transport.errors import Refused, RunFailed, RunMismatch
from ..transport.messages import STUCK, RoundRequest, Vote
from ..transport.subscription import Publisher
from ..transport.timeouts import loop_time
from ..transport.wire_format import MAX_REQUEST_BYTES, Envelope, Frame, FrameError
from .asynchronous_mixing import AsynchronousMixing
from .edge_states import EdgeStates
from .round_deadline import DeadlineEdges

if TYPE_CHECKING:
    from ..trust.message_masks import MessageMasks
    from ..trust.signed_messages import SignedMessages
    from .node import Node


class Service:
    """Service of the agent of a node: its messages, what it runs, and who has finished.

    `digests` are those of what all agents have in common. `folder` records who has finished.
    """

    def __init__(self, node: "Node"):
        self.agent, self.digests, self.last_tick = node.agent.number, node.digests, node.last_tick
        self.timeouts, self.run_blocking = node.timeouts, node.run_blocking
        self.folder, self.names, self.audit = node.folder, node.names, Audit()
        self.outbox = Outbox(node.agent.neighbours)
        self.publishers: dict[int, Publisher] = {}  # subscriptions of neighbours
        self.mismatches: dict[int, str] = {}  # neighbours that run something else
        self.edges: EdgeStates | None = None  # if rounds continue without absent neighbours
        self._response_limits: dict[int, float] = {}  # of neighbours in seconds
        self.durable = 0  # the agent is never set back before this round
        self.rollback_tick = 0  # unsent messages of earlier exchanges will never be sent
        self.finished: set[int] = set()  # neighbours that need nothing more
        self.status: Callable[[], dict[str, Any]] = dict  # state of the agent
        self.stop: Callable[[], None] = lambda: None  # requests a stop after the round
        self.open_connections: Callable[[], list[int]] = list  # neighbours that can be asked
        # Returns signed statuses of many sites.
        self.answer_overview: Callable[[messages.OverviewQuery], Awaitable[Frame]] | None = None
        self.masks: MessageMasks | None = None  # if messages are masked
        self.signatures: SignedMessages | None = None  # if messages are signed
        self.asynchronous: AsynchronousMixing | None = None  # if rounds are asynchronous
        self.receive_roster: Callable[[messages.RosterOffer], Frame] | None = None
        self.offer_roster: Callable[[int], Awaitable[None]] | None = None  # with each greeting
        self._finish_lock = asyncio.Lock()
        self._change = asyncio.Event()
        self._failure = ""

    def site_name(self, agent: int) -> str:
        """Return the name of the agent."""
        return site_name(self.names, agent)

    async def answer_request(self, sender: int, request: Frame) -> Frame | Publisher:
        """Answer the authenticated neighbour `sender`; empty if it must ask again."""
        header, _ = wire_format.unpack(request, MAX_REQUEST_BYTES)
        if sender not in (*self.outbox.durable, self.agent):
            raise Refused(
                f"{self.site_name(sender)} is no neighbour of {self.site_name(self.agent)}"
            )
        if header.get("sender") != sender:
            other = header.get("sender")
            other = self.site_name(other) if isinstance(other, int) else "nobody"
            raise Refused(f"{self.site_name(sender)} asks in the name of {other}")
        match messages.decode_request(header):
            case messages.Ping():
                return messages.Pong(time.time(), installed_versions()).encode()
            case messages.StatusQuery():
                status = self.status() | {"connected": self.open_connections()}
                return messages.StatusAnswer(status).encode()
            case messages.RosterOffer() as offer if self.receive_roster is not None:
                return self.receive_roster(offer)
            case messages.OverviewQuery() as query if self.answer_overview is not None:
                return await self.answer_overview(query)
            case messages.StopRequest() if sender == self.agent:
                self.stop()
                return messages.StopAnswer(self.status()).encode()
            case _ if sender == self.agent:
                raise Refused(f"{self.site_name(self.agent)} has no messages for itself")
            case messages.Greeting() as greeting:
                return self._answer_greeting(greeting)
            case messages.KeyRequest() as key_request:
                return await self._answer_key_request(key_request)
            case messages.RoundRequest() as round_request:
                return await self._answer_round_request(round_request)
            case unknown:
                raise FrameError(f"a request for {unknown.kind!r}, which is unknown here")

    def _answer_greeting(self, greeting: messages.Greeting) -> Frame:
        """Compare what the neighbour runs, and answer with receipts of its messages."""
        sender = greeting.sender
        own_name, sender_name = self.site_name(self.agent), self.site_name(sender)
        digests = self.digests, greeting.parts
        if mismatch := describe_differences(*digests, f"at {own_name}", f"at {sender_name}"):
            self.mismatches[sender] = mismatch
            raise RunMismatch(f"{own_name} runs something else: {mismatch}")
        self.mismatches.pop(sender, None)
        if greeting.within is not None and greeting.within > 0:
            self._response_limits[sender] = greeting.within
        answer = messages.GreetingAnswer(self.durable, self.outbox.durable[sender])
        if greeting.first is not None:
            receipts, has_more = self.outbox.receipts.page(sender, tuple(greeting.first))
            answer = replace(answer, receipts=receipts, more=has_more)
        return answer.encode()

    async def _answer_round_request(self, request: RoundRequest) -> Frame | Publisher:
        """Answer a request about an exchange of this run."""
        if request.run != self.digests["run"]:
            raise Refused(f"{self.site_name(self.agent)} runs something else: another digest")
        if request.round > self.last_tick:
            raise Refused(f"round {request.round} is not to come; the run has {self.last_tick}")
        match request:
            case messages.DurableReport():
                self.outbox.record_durable(request.sender, request.durable)
                return b""
            case messages.PositionReport():
                if not isinstance(self.edges, DeadlineEdges):
                    raise Refused(f"{self.site_name(self.agent)} runs without a deadline")
                return self.edges.answer_position(request.sender, request.round)
            case messages.SubscriptionRequest():
                return self._start_subscription(request)
        return await self._await_response(request)

    def _start_subscription(self, request: RoundRequest) -> Publisher:
        """Start a subscription in place of the neighbour's earlier one."""
        self.outbox.record_durable(request.sender, request.durable)
        first = 0 if self.outbox.keeps_latest else request.round
        publisher = self.publishers[request.sender] = Publisher(first)
        publisher.on_opened = lambda: self._send_available(request.sender, publisher)
        return publisher

    def _send_available(self, j: int, publisher: Publisher) -> None:
        """Send the available messages; the last message must be requested."""
        if self._failure:
            publisher.refuse(RunFailed(self._failure))
            return
        if self.outbox.keeps_latest:
            rounds = [t for t, _ in self.outbox.frames if t < self.last_tick]
            publisher.next_tick = max([publisher.next_tick, *rounds])
        while publisher.next_tick < self.last_tick:
            t = publisher.next_tick
            exists = (t, 0) in self.outbox.frames
            frame = self._message_for(j, t) if exists else self._rollback_notice(t)
            if frame is None:
                return
            publisher.next_tick += 1
            if not publisher.send(frame) or not exists:
                if self.publishers.get(j) is publisher and not self.outbox.keeps_latest:
                    del self.publishers[j]
                return

    def _message_for(self, j: int, t: int, consensus_step: int = 0) -> Frame | None:
        """Return the message of exchange t as neighbour j gets it."""
        frame = self.outbox.get(t, consensus_step)
        if self.signatures is not None and frame is not None:
            envelope = Envelope(self.digests["run"], self.agent, t, consensus_step)
            renewed = self.signatures.renew(frame, envelope)
            if renewed is not frame:
                self.outbox.add_message(t, renewed, consensus_step)
            return renewed
        if self.asynchronous is not None and frame is not None and t < self.last_tick:
            envelope = Envelope(self.digests["run"], self.agent, t)
            return self.asynchronous.frame_for(j, envelope, frame)
        if self.masks is None or frame is None or consensus_step or t == self.last_tick:
            return frame
        return self.masks.mask_frame(j, t, frame)

    async def _answer_key_request(self, request: messages.KeyRequest) -> Frame:
        """Answer a request for keys of masked sums; empty if there is no answer for a while."""
        if self.masks is None:
            raise Refused(f"{self.site_name(self.agent)} runs without masked sums")
        until = loop_time() + self.timeouts.round / 2
        while (answer := self.masks.keys.answer_request(request)) is None:
            if not await self._wait_for_change(until):
                return b""
        return answer

    async def _wait_for_change(self, until: float) -> bool:
        """Wait until something new can be answered; return False if the time is over first."""
        change = self._change
        try:
            async with asyncio.timeout_at(until):
                await change.wait()
        except TimeoutError:
            return False
        return True

    def _rollback_notice(self, t: int, consensus_step: int = 0) -> Frame | None:
        """Return the rollback notice, if the agent has rolled back."""
        if not self.outbox.first_round <= t < self.rollback_tick:
            return None
        return messages.RollbackNotice(self.digests["run"], self.agent, t, consensus_step).encode()

    def record_rollback(self, t: int) -> None:
        """Record that the agent rolled back, to exchange t on the clock."""
        self.rollback_tick = t
        for j, publisher in list(self.publishers.items()):
            self._send_available(j, publisher)
        self.notify_waiting()

    async def _await_response(self, request: RoundRequest) -> Frame:
        """Return the requested item; wait for half of the response time limit."""
        limit = self._response_limits.get(request.sender, self.timeouts.round)
        until = loop_time() + min(self.timeouts.round, limit) / 2
        self.outbox.record_durable(request.sender, request.durable)
        while True:
            if request.durable == self.last_tick:  # which may have become earlier meanwhile
                await self.record_finished(request.sender)
            if self._failure:
                raise RunFailed(self._failure)
            if (response := await self._available_response(request)) is not None:
                return response
            if not await self._wait_for_change(until):
                return b""

    async def _available_response(self, request: RoundRequest) -> Frame | None:
        """Return the available answer."""
        wants_message = isinstance(request, messages.MessageRequest)
        t, step = request.round, request.consensus_step
        if self.edges and not step and (vote := await self.edges.answer_request(request)):
            return vote
        try:
            frame = self._message_for(request.sender, t, step) if wants_message else None
        except MessageDiscarded as error:
            raise Refused(f"{self.site_name(self.agent)}: {error}") from None
        if frame is None and self.edges and self.edges.stuck:
            return Vote(STUCK).encode()
        return self._rollback_notice(t, step) if frame is None and wants_message else frame

    def publish(self, round: int, content: Frame, consensus_step: int = 0) -> None:
        """Publish `content` as the message of `round`, or before it."""
        self.outbox.add_message(round, content, consensus_step)
        for j, publisher in list(self.publishers.items()):
            self._send_available(j, publisher)
        self.notify_waiting()

    def fail(self, reason: str) -> None:
        """Answer every later request with this failure."""
        self._failure = reason
        for j, publisher in self.publishers.items():
            self._send_available(j, publisher)
        self.notify_waiting()

    async def record_finished(self, j: int) -> None:
        """Record that neighbour j has finished, before it gets a response."""
        async with self._finish_lock:
            if j in self.finished:
                return
            if self.folder is not None:
                record, finished = site_checkpoint.record_finished, {*self.finished, j}
                await self.run_blocking(record, self.folder, self.digests["run"], finished)
            self.finished.add(j)
        self.notify_waiting()

    async def await_finished(self, j: int) -> None:
        """Wait until neighbour j has asked as a finished agent."""
        while j not in self.finished:
            await self._change.wait()

    def notify_waiting(self) -> None:
        """Wake all waiting tasks."""
        change, self._change = self._change, asyncio.Event()
        change.set()
