"""Session of one connection to this site, unauthenticated until its first packet is read."""

import asyncio
import time
from collections.abc import Awaitable
from typing import Any, Protocol

from . import wire_format
from .audit import Audit
from .call_errors import Differs, Outdated, Refused, Stopped
from .packet_stream import (
    ANSWER,
    ASK,
    CHUNK,
    DIFFERS,
    LONGEST,
    MISREAD,
    OUTDATED,
    REFUSED,
    STOPPED,
    Packets,
    TooLong,
)
from .roster import Member
from .subscription import AHEAD, Feed
from .tls import shown
from .wire_format import REQUEST, Frame, FrameError

CODES: dict[type[Exception], int] = {
    Outdated: OUTDATED,
    Stopped: STOPPED,
    Differs: DIFFERS,
    Refused: REFUSED,
}
GRACE = 1.0  # seconds for the other end to read why its connection is closed


class Door(Protocol):
    """Interface of the server for its connections."""

    audit: Audit

    def begin(self, work: Awaitable[Any]) -> "asyncio.Task[Any]":
        """Start a task that ends with the server at the latest."""
        ...

    def member(self, key: str, theirs: int) -> Member:
        """Return the member with this key and roster version `theirs`; or raise `Refused`."""
        ...

    def enter(self, visit: "Visit") -> None:
        """Count the connection of a member."""

    def admits(self, visit: "Visit") -> bool:
        """Return whether one more request may start."""
        ...

    def limit_queued(self, visit: "Visit") -> None:
        """Bound the unread responses."""

    async def reply(self, visit: "Visit", number: int, request: Frame) -> None:
        """Answer one request."""


class Visit:
    """One connection to the server, unauthenticated until its first packet is read."""

    def __init__(self, server: Door, address: str):
        self.server, self.address = server, address
        self.member: Member | None = None
        self.packets = Packets(REQUEST, self._heard)
        self.opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.packets.on_lost, self.packets.on_too_long = self._lost_early, self._too_long
        self.replies: set[asyncio.Task[Any]] = set()
        self.sending = 0  # long responses that the other end has yet to read
        self.pushing: list[asyncio.Task[Any]] = []  # pending messages
        self.timer: Any = None
        self.begun = self.evicted = False

    @property
    def source(self) -> str:
        """Return the name and address of the other end."""
        return f"{self.member.name} at {self.address}" if self.member else self.address

    def evict(self, task: "asyncio.Task[Any]") -> None:
        """Close an unauthenticated connection."""
        self.evicted = True
        task.cancel()

    def _lost_early(self) -> None:
        if not self.opened.done():
            cause = self.packets.cause or ConnectionResetError("closed before it said anything")
            self.opened.set_exception(cause)

    def _heard(self, number: int, code: int, body: memoryview) -> None:
        if self.member is None:
            if not self.opened.done():
                self._open(number, body)
            return
        if code != ASK or not self.server.admits(self):
            self.packets.fail(ConnectionAbortedError("too many requests at once"))
            return
        task = self.server.begin(self.server.reply(self, number, bytes(body)))
        self.replies.add(task)
        task.add_done_callback(self.replies.discard)

    @property
    def queued(self) -> int:
        """Return the number of unread responses in memory."""
        return self.sending + len(self.pushing)

    async def send(self, number: int, code: int, body: Frame) -> None:
        """Send a response; a long one counts until the other end has read it."""
        if len(body) <= CHUNK:
            return await self.packets.send(number, code, body)
        self.sending += 1
        try:
            self.server.limit_queued(self)
            await self.packets.send(number, code, body)
        finally:
            self.sending -= 1

    def carry(self, number: int, feed: Feed) -> None:
        """Send the messages of the feed as responses to that request."""
        feed.send = lambda content: self._push(number, ANSWER, content)
        feed.refuse = lambda cause: self._refuse(number, cause)
        feed.opened()

    def _refuse(self, number: int, cause: Refused) -> None:
        self._push(number, CODES[type(cause)], str(cause).encode()[:LONGEST])

    def _push(self, number: int, code: int, content: Frame) -> bool:
        """Send immediately, or after pending messages unless there are too many."""
        try:
            if not self.pushing and self.packets.push(number, code, content):
                return True
        except ConnectionError:
            return False
        if len(self.pushing) >= AHEAD or self.packets.lost.done():
            return False
        before = self.pushing[-1] if self.pushing else None
        task = self.server.begin(self._later(before, number, code, content))
        self.pushing.append(task)
        task.add_done_callback(self.pushing.remove)
        self.server.limit_queued(self)
        return True

    async def _later(self, before: Any, number: int, code: int, content: Frame) -> None:
        if before is not None:
            await asyncio.wait([before])
        try:
            await self.packets.send(number, code, content)
        except ConnectionError:
            pass  # it will be requested on another connection

    def _too_long(self, number: int, cause: TooLong) -> None:
        """Report the error, then close the connection; discard what arrives meanwhile."""
        if self.member is None:
            self.packets.fail(cause)
            return
        self.server.audit.note(self.source, f"closed: {cause}")
        self.packets.put(number, MISREAD, str(cause).encode())
        asyncio.get_running_loop().call_later(GRACE, self.packets.fail, cause)

    def _open(self, number: int, body: memoryview) -> None:
        """Authenticate: the first packet has the roster version, the key has the identity."""
        try:
            header, _ = wire_format.unpack(bytes(body), REQUEST)
            theirs = header.get("roster")
            key, expires = shown(self.packets.transport.get_extra_info("ssl_object"))
            member = self.server.member(key, theirs if isinstance(theirs, int) else 0)
        except (Refused, FrameError) as reason:
            code = CODES.get(type(reason), MISREAD)
            self.packets.put(number, code, str(reason).encode()[:LONGEST])
            self.opened.set_exception(reason)
            return
        self.member = member
        self.server.enter(self)
        left = max(0.0, expires - time.time())
        self.timer = asyncio.get_running_loop().call_later(left, self._expired)
        self.packets.put(number, ANSWER, b"")
        self.opened.set_result(None)

    def _expired(self) -> None:
        self.server.audit.note(self.source, "closed: its certificate has expired")
        self.packets.fail(ConnectionAbortedError("the certificate has expired"))
