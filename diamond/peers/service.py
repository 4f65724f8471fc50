"""What an agent answers its neighbours when they ask."""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from . import checkpoints, frame
from .audit import Audit
from .edge_states import STUCK, Edges, tell
from .errors import Differs, Refused, Stopped
from .following import Feed
from .frame import REQUEST, Ask, Envelope, Frame
from .handshake import differing
from .outbox import Gone, Outbox
from .site_names import UNKNOWN, Names, called
from .timeouts import Limits
from .worker_thread import Work


class Service:
    """Agent `agent`'s side of every question: its messages, what it runs, who has finished.

    `parts` is the digest of what all agents have in common. `folder` remembers who has finished.
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
        self.agent, self.parts, self.last = agent, parts, last  # the last tick
        self.limits, self.work, self.folder = limits, work, folder
        self.names, self.audit = names, Audit()
        self.outbox = Outbox(neighbours)
        self.feeds: dict[int, Feed] = {}  # standing orders of neighbours
        self.differs: dict[int, str] = {}  # neighbours that asked while running something else
        self.edges: Edges | None = None  # where rounds are made without neighbours that are away
        self._within: dict[int, float] = {}  # seconds in which a neighbour wants to be answered
        self.durable = 0  # the agent itself is never set back before this round
        self.gone = 0  # what it has not told of exchanges before this, it never will
        self.finished: set[int] = set()  # neighbours that need nothing any more
        self.status: Callable[[], dict[str, Any]] = dict  # where the agent stands
        self.stop: Callable[[], None] = lambda: None  # asks it to stop after its round
        self._knowing = asyncio.Lock()
        self._news = asyncio.Event()
        self._failure = ""

    def call(self, agent: int) -> str:
        """What the agent is called."""
        return called(self.names, agent)

    async def answer(self, sender: int, request: Frame) -> Frame | Feed:
        """What the neighbour `sender`, known for certain, gets; empty if it must ask again."""
        header, _ = frame.unpack(request, REQUEST)
        if sender not in (*self.outbox.durable, self.agent):
            raise Refused(f"{self.call(sender)} is no neighbour of {self.call(self.agent)}")
        if header.get("sender") != sender:
            other = header.get("sender")
            other = self.call(other) if isinstance(other, int) else "nobody"
            raise Refused(f"{self.call(sender)} asks in the name of {other}")
        if header.get("kind") == "ping":
            return frame.pack({"kind": "ping"})
        if header.get("kind") == "status":
            return frame.pack({"kind": "status", **self.status()})
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
            return frame.pack({"kind": "hello", "durable": self.durable, "kept": kept})
        ask = frame.decode_ask(header)
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
        """What the agent's own operator gets, who may also stop it."""
        if kind != "stop":
            raise Refused(f"{self.call(self.agent)} has no messages for itself")
        self.stop()
        return frame.pack({"kind": "stop", **self.status()})

    def _follow(self, ask: Ask) -> Feed:
        """A standing order, in place of the one that the neighbour had."""
        self.outbox.heard(ask.sender, ask.durable)
        feed = self.feeds[ask.sender] = Feed(ask.round)
        feed.opened = lambda: self._feed(ask.sender, feed)
        return feed

    def _feed(self, j: int, feed: Feed) -> None:
        """Send what is there; the last word of all is to be asked for."""
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
        """The word that the agent has gone back, where it has."""
        if not self.outbox.floor <= t < self.gone:
            return None
        return frame.gone(Envelope(self.parts["run"], self.agent, t, talk))

    def leave(self, t: int) -> None:
        """The agent has gone back, to exchange t by the clock."""
        self.gone = t
        for j, feed in list(self.feeds.items()):
            self._feed(j, feed)
        self.wake()

    async def _serve(self, ask: Ask, kind: str) -> Frame:
        """What is asked for, waited for during half of the time an answer may take."""
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
        """What there is to say now."""
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
        """From now on, `content` is the message of `round`, or said before it."""
        self.outbox.put(round, content, talk)
        for j, feed in list(self.feeds.items()):
            self._feed(j, feed)
        self.wake()

    def fail(self, why: str) -> None:
        """From now on, every question gets this for an answer."""
        self._failure = why
        for j, feed in self.feeds.items():
            self._feed(j, feed)
        self.wake()

    async def know(self, j: int) -> None:
        """Neighbour j has finished; remembered before it gets an answer."""
        async with self._knowing:
            if j in self.finished:
                return
            if self.folder is not None:
                known = {*self.finished, j}
                await self.work(checkpoints.finish, self.folder, self.parts["run"], known)
            self.finished.add(j)
        self.wake()

    async def known(self, j: int) -> None:
        """Until neighbour j has asked as one that has finished."""
        while j not in self.finished:
            await self._news.wait()

    def wake(self) -> None:
        """Let those who wait look again."""
        news, self._news = self._news, asyncio.Event()
        news.set()
