"""Service of an agent: responses to its neighbours' requests."""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from . import site_checkpoint, wire_format
from .audit import Audit
from .call_errors import Differs, Refused, Stopped
from .edge_states import STUCK, Edges, tell
from .handshake import differing
from .outbox import Gone, Outbox
from .site_names import UNKNOWN, Names, called
from .subscription import Feed
from .timeouts import Limits
from .wire_format import REQUEST, Ask, Envelope, Frame
from .worker_thread import Work


class Service:
    """Service of agent `agent`: its messages, what it runs, and who has finished.

    `parts` is the digest of what all agents have in common. `folder` records who has finished.
    """

    def __init__(
        self,
        agent: int,
        neighbours: Iterable[int],
        parts: Mapping[str, str],
        last: int,
        limits: Limits,
        work: Work,
        folder: Path | None,
        names: Names = UNKNOWN,
    ):
        self.agent, self.parts, self.last = agent, parts, last  # `last` is the last tick
        self.limits, self.work, self.folder = limits, work, folder
        self.names, self.audit = names, Audit()
        self.outbox = Outbox(neighbours)
        self.feeds: dict[int, Feed] = {}  # subscriptions of neighbours
        self.differs: dict[int, str] = {}  # neighbours that run something else
        self.edges: Edges | None = None  # if rounds continue without absent neighbours
        self._within: dict[int, float] = {}  # response time limits of neighbours in seconds
        self.durable = 0  # the agent is never set back before this round
        self.gone = 0  # unsent messages of earlier exchanges will never be sent
        self.finished: set[int] = set()  # neighbours that need nothing more
        self.status: Callable[[], dict[str, Any]] = dict  # state of the agent
        self.stop: Callable[[], None] = lambda: None  # requests a stop after the round
        self._knowing = asyncio.Lock()
        self._news = asyncio.Event()
        self._failure = ""

    def call(self, agent: int) -> str:
        """Return the name of the agent."""
        return called(self.names, agent)

    async def answer(self, sender: int, request: Frame) -> Frame | Feed:
        """Answer the authenticated neighbour `sender`; empty if it must ask again."""
        header, _ = wire_format.unpack(request, REQUEST)
        if sender not in (*self.outbox.durable, self.agent):
            raise Refused(f"{self.call(sender)} is no neighbour of {self.call(self.agent)}")
        if header.get("sender") != sender:
            other = header.get("sender")
            other = self.call(other) if isinstance(other, int) else "nobody"
            raise Refused(f"{self.call(sender)} asks in the name of {other}")
        if header.get("kind") == "ping":
            return wire_format.pack({"kind": "ping"})
        if header.get("kind") == "status":
            return wire_format.pack({"kind": "status", **self.status()})
        if sender == self.agent:
            return self._own(header.get("kind"))
        if header.get("kind") == "hello":
            whose = f"at {self.call(self.agent)}", f"at {self.call(sender)}"
            if said := differing(self.parts, header.get("parts"), *whose):
                self.differs[sender] = said
                raise Differs(f"{self.call(self.agent)} runs something else: {said}")
            self.differs.pop(sender, None)
            if isinstance(within := header.get("within"), float) and within > 0:
                self._within[sender] = within
            kept = self.outbox.durable[sender]
            return wire_format.pack({"kind": "hello", "durable": self.durable, "kept": kept})
        ask = wire_format.decode_ask(header)
        if ask.run != self.parts["run"]:
            raise Refused(f"{self.call(self.agent)} runs something else: another digest")
        if ask.round > self.last:
            raise Refused(f"round {ask.round} is not to come; the run has {self.last}")
        if header["kind"] == "kept":
            self.outbox.heard(ask.sender, ask.durable)
            return b""
        if header["kind"] == "follow":
            return self._follow(ask)
        return await self._serve(ask, header["kind"])

    def _own(self, kind: object) -> Frame:
        """Answer the agent's own operator, who may also stop it."""
        if kind != "stop":
            raise Refused(f"{self.call(self.agent)} has no messages for itself")
        self.stop()
        return wire_format.pack({"kind": "stop", **self.status()})

    def _follow(self, ask: Ask) -> Feed:
        """Start a subscription in place of the neighbour's earlier one."""
        self.outbox.heard(ask.sender, ask.durable)
        feed = self.feeds[ask.sender] = Feed(ask.round)
        feed.opened = lambda: self._feed(ask.sender, feed)
        return feed

    def _feed(self, j: int, feed: Feed) -> None:
        """Send the available messages; the last message must be requested."""
        if self._failure:
            feed.refuse(Stopped(self._failure))
            return
        while feed.next < self.last:
            there = (feed.next, 0) in self.outbox.frames
            found = self.outbox.get(feed.next) if there else self._gone(feed.next)
            if found is None:
                return
            feed.next += 1
            if not feed.send(found) or not there:
                if self.feeds.get(j) is feed:
                    del self.feeds[j]
                return

    def _gone(self, t: int, talk: int = 0) -> Frame | None:
        """Return the rollback notice, if the agent has rolled back."""
        if not self.outbox.floor <= t < self.gone:
            return None
        return wire_format.gone(Envelope(self.parts["run"], self.agent, t, talk))

    def leave(self, t: int) -> None:
        """Record that the agent rolled back, to exchange t on the clock."""
        self.gone = t
        for j, feed in list(self.feeds.items()):
            self._feed(j, feed)
        self.wake()

    async def _serve(self, ask: Ask, kind: str) -> Frame:
        """Return the requested item; wait for half of the response time limit."""
        now = asyncio.get_running_loop().time()
        until = now + min(self.limits.round, self._within.get(ask.sender, self.limits.round)) / 2
        self.outbox.heard(ask.sender, ask.durable)
        if ask.durable == self.last:
            await self.know(ask.sender)
        while True:
            if self._failure:
                raise Stopped(self._failure)
            if (found := await self._found(ask, kind)) is not None:
                return found
            news = self._news
            try:
                async with asyncio.timeout_at(until):
                    await news.wait()
            except TimeoutError:
                return b""

    async def _found(self, ask: Ask, kind: str) -> Frame | None:
        """Return the available answer."""
        if self.edges and not ask.talk and (said := await self.edges.reply(ask, kind)):
            return said
        try:
            found = self.outbox.get(ask.round, ask.talk) if kind == "ask" else None
        except Gone as gone:
            raise Refused(f"{self.call(self.agent)}: {gone}") from None
        if found is None and self.edges and self.edges.stuck:
            return tell(STUCK)
        return self._gone(ask.round, ask.talk) if found is None and kind == "ask" else found

    def publish(self, round: int, content: Frame, talk: int = 0) -> None:
        """Publish `content` as the message of `round`, or before it."""
        self.outbox.put(round, content, talk)
        for j, feed in list(self.feeds.items()):
            self._feed(j, feed)
        self.wake()

    def fail(self, why: str) -> None:
        """Answer every later request with this failure."""
        self._failure = why
        for j, feed in self.feeds.items():
            self._feed(j, feed)
        self.wake()

    async def know(self, j: int) -> None:
        """Record that neighbour j has finished, before it gets a response."""
        async with self._knowing:
            if j in self.finished:
                return
            if self.folder is not None:
                known = {*self.finished, j}
                await self.work(site_checkpoint.finish, self.folder, self.parts["run"], known)
            self.finished.add(j)
        self.wake()

    async def known(self, j: int) -> None:
        """Wait until neighbour j has asked as a finished agent."""
        while j not in self.finished:
            await self._news.wait()

    def wake(self) -> None:
        """Wake all waiting tasks."""
        news, self._news = self._news, asyncio.Event()
        news.set()
