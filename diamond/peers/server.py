"""Server of a site: admission of connections, and responses to requests.

Every connection proves a key by mutual TLS and is checked against the roster when it is opened; it
is closed when its certificate expires. Unauthenticated connections pass the gate. A neighbour has
at most a few connections, the newest ones, and on all of them together a few requests in progress
and a few unread responses.
"""

import asyncio
import errno
import socket
import ssl
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Any

from .admission import SECONDS, Gate
from .audit import Audit
from .call_errors import Outdated, Refused
from .listening_sockets import listening
from .packet_stream import ANSWER, LONGEST, MISREAD
from .roster import Bundle, Member
from .session import CODES, GRACE, Visit
from .subscription import Feed
from .tls import context
from .wire_format import Frame, FrameError

Answer = Callable[[int, Frame], Awaitable[Frame | Feed]]  # (sender, request) -> answer
CONNECTIONS = 8  # maximum per neighbour
HELD = 32  # maximum requests of one neighbour in progress, on all connections
QUEUED = 8  # maximum unread responses to one neighbour in memory
RESOLVE = 300.0  # seconds between lookups of the neighbours' host names
SCARCE = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


class Server:
    """Server for the neighbours of this site, at its roster address by default."""

    def __init__(
        self, bundle: Bundle, answer: Answer, address: str | None = None, audit: Audit | None = None
    ):
        self._bundle, self._answer, self.audit = bundle, answer, audit or Audit()
        self._context, self.gate = context(bundle, serves=True), Gate()
        self._sockets = listening(address or bundle.me.address)
        self.port = self._sockets[0].getsockname()[1]
        self.visits: list[Visit] = []  # authenticated, in order of arrival
        self._tasks: set[asyncio.Task[Any]] = set()
        self._accepting: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> "Server":
        self._accepting = [asyncio.ensure_future(self._accept(one)) for one in self._sockets]
        self.begin(self._reserve())
        return self

    async def _reserve(self) -> None:
        """Reserve places at the gate for the hosts that the roster lists as neighbours."""
        loop = asyncio.get_running_loop()
        hosts = {one.address.rsplit(":", 1)[0].strip("[]") for one in self._bundle.neighbours}
        while True:
            known: set[str] = set()
            for host in hosts:
                with suppress(OSError):  # an unknown name may resolve at the next lookup
                    found = await loop.getaddrinfo(host, None, type=socket.SOCK_STREAM)
                    known |= {str(place[0]) for *_, place in found}
            self.gate.reserved = known
            await asyncio.sleep(RESOLVE)

    async def __aexit__(self, *error: object) -> None:
        for task in self._accepting:
            task.cancel()
        await asyncio.gather(*self._accepting, return_exceptions=True)
        for one in self._sockets:
            one.close()
        replies = [task for visit in self.visits for task in visit.replies]
        if replies:
            await asyncio.wait(replies, timeout=GRACE)
        for task in self._tasks:
            task.cancel()
        visits = list(self.visits)
        for visit in visits:
            visit.packets.close()
        if visits:
            await asyncio.wait([visit.packets.lost for visit in visits], timeout=GRACE)
        for visit in visits:
            visit.packets.fail(ConnectionAbortedError("the site has closed"))
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def begin(self, work: Awaitable[Any]) -> "asyncio.Task[Any]":
        """Start a task that ends with the server at the latest."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, address = await loop.sock_accept(listening)
            except OSError as cause:  # no stranger's error may stop the site
                self.audit.note("a connection", f"could not be accepted: {cause.strerror}")
                await asyncio.sleep(1.0 if cause.errno in SCARCE else 0.01)
                continue
            visit = Visit(self, f"{address[0]}:{address[1]}")
            task = self.begin(self._admit(visit, connection, address[0]))
            task.add_done_callback(partial(_ended, visit, connection))
            await asyncio.sleep(0)  # handle a flood one by one

    async def _admit(self, visit: Visit, connection: socket.socket, machine: str) -> None:
        """Authenticate a connection, or close it."""
        visit.begun, me = True, asyncio.current_task()
        assert me is not None
        number = self.gate.enter(machine, lambda: visit.evict(me))
        try:
            async with asyncio.timeout(SECONDS):
                await asyncio.get_running_loop().connect_accepted_socket(
                    lambda: visit.packets,
                    connection,
                    ssl=self._context,
                    ssl_handshake_timeout=SECONDS,
                    ssl_shutdown_timeout=GRACE,
                )
                await visit.opened
        except (OSError, TimeoutError, Refused, FrameError) as cause:
            self.audit.note(visit.address, f"refused: {_reason(cause)}")
            visit.packets.close()
        except asyncio.CancelledError:
            if visit.evicted:
                self.audit.note(visit.address, "closed: too many connections that prove nothing")
            with suppress(OSError):  # the event loop closes the socket
                connection.shutdown(socket.SHUT_RDWR)
        finally:
            self.gate.leave(number)

    def member(self, key: str, theirs: int) -> Member:
        """Return the member with this key; `theirs` is the caller's version of the roster."""
        roster, me = self._bundle.roster, self._bundle.me
        found = roster.by_key(key)
        if found is None:
            raise _unknown(key, me.name, roster.version, theirs)
        if found.number not in (*me.neighbours, me.number):
            raise Refused(f"{found.name} is no neighbour of {me.name}")
        return found

    def enter(self, visit: Visit) -> None:
        """Add a connection of a member; close its oldest if there are too many."""
        assert visit.member is not None
        same = [one for one in self.visits if one.member == visit.member]
        if len(same) >= CONNECTIONS:
            same[0].packets.fail(ConnectionAbortedError("a newer connection took its place"))
        self.visits.append(visit)
        visit.packets.on_lost = lambda: self._left(visit)

    def admits(self, visit: Visit) -> bool:
        """Return whether one more request may start; if too many, close the oldest connection."""
        same = self._of(visit)
        if sum(len(one.replies) for one in same) < HELD:
            return True
        oldest = next(one for one in same if one.replies)
        self._close(oldest, f"more than {HELD} requests at once")
        return oldest is not visit

    def limit_queued(self, visit: Visit) -> None:
        """Close the oldest connection of a neighbour that does not read its responses."""
        same = self._of(visit)
        if sum(one.queued for one in same) > QUEUED:
            oldest = next(one for one in same if one.queued)
            self._close(oldest, f"more than {QUEUED} answers that it does not read")

    def _of(self, visit: Visit) -> list[Visit]:
        """Return the open connections of the same member."""
        same = [one for one in self.visits if one.member == visit.member]
        return [one for one in same if not one.packets.transport.is_closing()]

    def _close(self, visit: Visit, why: str) -> None:
        self.audit.note(visit.source, f"closed: {why}")
        visit.packets.fail(ConnectionAbortedError(why))

    def _left(self, visit: Visit) -> None:
        self.visits.remove(visit)
        visit.timer.cancel()
        for task in (*visit.replies, *visit.pushing):
            task.cancel()

    async def reply(self, visit: Visit, number: int, request: Frame) -> None:
        """Answer one request."""
        assert visit.member is not None
        try:
            found = await self._answer(visit.member.number, request)
            if isinstance(found, Feed):
                visit.carry(number, found)
                return
            code, body = ANSWER, found
        except Refused as reason:
            self.audit.note(visit.source, f"refused: {reason}")
            code, body = CODES[type(reason)], str(reason).encode()[:LONGEST]
        except FrameError as reason:
            self.audit.note(visit.source, f"sent what cannot be read: {reason}")
            code, body = MISREAD, str(reason).encode()[:LONGEST]
        try:
            await visit.send(number, code, body)
        except ConnectionError:
            pass  # the caller is gone, and will ask again


def _ended(visit: Visit, connection: socket.socket, done: "asyncio.Task[Any]") -> None:
    """Release a connection whose task ended early."""
    if not visit.begun:
        connection.close()
    if not done.cancelled():
        done.exception()


def _unknown(key: str, name: str, mine: int, theirs: int) -> Refused:
    """Explain why a key of this authority is refused; the claimed version decides nothing else."""
    if theirs > mine:
        return Outdated(
            f"{name} has roster {mine}, not yet {theirs}; start it again with its new bundle"
        )
    superseded = f": roster {theirs} is superseded, take the new bundle" * (theirs < mine)
    return Refused(
        f"the certificate is of this federation, but its key {key[:16]}... is not in roster "
        f"{mine} of {name}{superseded}"
    )


def _reason(cause: BaseException) -> str:
    """Explain why a connection failed."""
    if isinstance(cause, ssl.SSLError):
        return f"no mutual TLS ({cause.reason or cause})"
    if isinstance(cause, TimeoutError) or "handshake is taking longer" in str(cause):
        return f"no proof of a key within {SECONDS:g} s"
    return str(cause) or type(cause).__name__
