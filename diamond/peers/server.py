"""Server of a site: admission of connections, and responses to requests.

Every connection proves a key by mutual TLS and is checked against the roster when it is opened; it
is closed when its certificate expires. Unauthenticated connections pass the admission queue. A
neighbour has at most a few connections, the newest ones, and on all of them together a few requests
in progress and a few unread responses.
"""

import asyncio
import errno
import socket
import ssl
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Any

from .admission import AUTHENTICATION_SECONDS, AdmissionQueue
from .audit import Audit
from .call_errors import OutdatedRoster, Refused
from .listening_sockets import open_listening_sockets
from .packet_stream import MAX_REFUSAL_BYTES, RESPONSE, UNREADABLE
from .roster import Bundle, Member
from .session import ERROR_CODES, GRACE_SECONDS, Session
from .subscription import Publisher
from .tls import tls_context
from .wire_format import Frame, FrameError

RequestHandler = Callable[[int, Frame], Awaitable[Frame | Publisher]]  # of (sender, request)
MAX_CONNECTIONS = 8  # per neighbour
MAX_REQUESTS = 32  # of one neighbour in progress, on all connections
MAX_UNREAD = 8  # responses to one neighbour in memory
LOOKUP_SECONDS = 300.0  # between lookups of the neighbours' host names
RESOURCE_ERRORS = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


class Server:
    """Server for the neighbours of this site, at its roster address by default."""

    def __init__(
        self,
        bundle: Bundle,
        handle_request: RequestHandler,
        address: str | None = None,
        audit: Audit | None = None,
    ):
        self._bundle, self._handle_request, self.audit = bundle, handle_request, audit or Audit()
        self._tls, self.admission_queue = tls_context(bundle, is_server=True), AdmissionQueue()
        self._sockets = open_listening_sockets(address or bundle.me.address)
        self.port = self._sockets[0].getsockname()[1]
        self.sessions: list[Session] = []  # authenticated, in order of arrival
        self._tasks: set[asyncio.Task[Any]] = set()
        self._accepting: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> "Server":
        self._accepting = [
            asyncio.ensure_future(self._accept(listener)) for listener in self._sockets
        ]
        self.start_task(self._reserve_neighbours())
        return self

    async def _reserve_neighbours(self) -> None:
        """Reserve admission for the hosts that the roster lists as neighbours."""
        loop = asyncio.get_running_loop()
        hosts = {member.address.rsplit(":", 1)[0].strip("[]") for member in self._bundle.neighbours}
        while True:
            addresses: set[str] = set()
            for host in hosts:
                with suppress(OSError):  # an unknown name may resolve at the next lookup
                    resolved = await loop.getaddrinfo(host, None, type=socket.SOCK_STREAM)
                    addresses |= {str(place[0]) for *_, place in resolved}
            self.admission_queue.reserved = addresses
            await asyncio.sleep(LOOKUP_SECONDS)

    async def __aexit__(self, *error: object) -> None:
        for task in self._accepting:
            task.cancel()
        await asyncio.gather(*self._accepting, return_exceptions=True)
        for listener in self._sockets:
            listener.close()
        replies = [task for session in self.sessions for task in session.replies]
        if replies:
            await asyncio.wait(replies, timeout=GRACE_SECONDS)
        for task in self._tasks:
            task.cancel()
        sessions = list(self.sessions)
        for session in sessions:
            session.packets.close()
        if sessions:
            await asyncio.wait(
                [session.packets.closed for session in sessions], timeout=GRACE_SECONDS
            )
        for session in sessions:
            session.packets.abort(ConnectionAbortedError("the site has closed"))
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def start_task(self, work: Awaitable[Any]) -> "asyncio.Task[Any]":
        """Start a task that ends with the server at the latest."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _accept(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, address = await loop.sock_accept(listener)
            except OSError as cause:  # no stranger's error may stop the site
                self.audit.record_event("a connection", f"could not be accepted: {cause.strerror}")
                await asyncio.sleep(1.0 if cause.errno in RESOURCE_ERRORS else 0.01)
                continue
            session = Session(self, f"{address[0]}:{address[1]}")
            task = self.start_task(self._admit(session, connection, address[0]))
            task.add_done_callback(partial(_release_connection, session, connection))
            await asyncio.sleep(0)  # handle a flood one by one

    async def _admit(self, session: Session, connection: socket.socket, machine: str) -> None:
        """Authenticate a connection, or close it."""
        session.is_started, me = True, asyncio.current_task()
        assert me is not None
        number = self.admission_queue.add(machine, lambda: session.evict(me))
        try:
            async with asyncio.timeout(AUTHENTICATION_SECONDS):
                await asyncio.get_running_loop().connect_accepted_socket(
                    lambda: session.packets,
                    connection,
                    ssl=self._tls,
                    ssl_handshake_timeout=AUTHENTICATION_SECONDS,
                    ssl_shutdown_timeout=GRACE_SECONDS,
                )
                await session.authenticated
        except (OSError, TimeoutError, Refused, FrameError) as cause:
            self.audit.record_event(session.address, f"refused: {_describe_failure(cause)}")
            session.packets.close()
        except asyncio.CancelledError:
            if session.is_evicted:
                self.audit.record_event(
                    session.address, "closed: too many connections that prove nothing"
                )
            with suppress(OSError):  # the event loop closes the socket
                connection.shutdown(socket.SHUT_RDWR)
        finally:
            self.admission_queue.remove(number)

    def find_member(self, key: str, roster_version: int) -> Member:
        """Return the member with this key; `roster_version` is the caller's."""
        roster, me = self._bundle.roster, self._bundle.me
        member = roster.by_key(key)
        if member is None:
            raise _unknown_key(key, me.name, roster.version, roster_version)
        if member.number not in (*me.neighbours, me.number):
            raise Refused(f"{member.name} is no neighbour of {me.name}")
        return member

    def add_session(self, session: Session) -> None:
        """Add a connection of a member; close its oldest if there are too many."""
        assert session.member is not None
        same = [s for s in self.sessions if s.member == session.member]
        if len(same) >= MAX_CONNECTIONS:
            same[0].packets.abort(ConnectionAbortedError("a newer connection took its place"))
        self.sessions.append(session)
        session.packets.on_closed = lambda: self._remove_session(session)

    def admits_request(self, session: Session) -> bool:
        """Return whether one more request may start; if too many, close the oldest connection."""
        same = self._open_sessions(session)
        if sum(len(s.replies) for s in same) < MAX_REQUESTS:
            return True
        oldest = next(s for s in same if s.replies)
        self._close(oldest, f"more than {MAX_REQUESTS} requests at once")
        return oldest is not session

    def limit_unread(self, session: Session) -> None:
        """Close the oldest connection of a neighbour that does not read its responses."""
        same = self._open_sessions(session)
        if sum(s.unread for s in same) > MAX_UNREAD:
            oldest = next(s for s in same if s.unread)
            self._close(oldest, f"more than {MAX_UNREAD} answers that it does not read")

    def _open_sessions(self, session: Session) -> list[Session]:
        """Return the open connections of the same member."""
        same = [s for s in self.sessions if s.member == session.member]
        return [s for s in same if not s.packets.transport.is_closing()]

    def _close(self, session: Session, why: str) -> None:
        self.audit.record_event(session.source, f"closed: {why}")
        session.packets.abort(ConnectionAbortedError(why))

    def _remove_session(self, session: Session) -> None:
        self.sessions.remove(session)
        session.timer.cancel()
        for task in (*session.replies, *session.pending_pushes):
            task.cancel()

    async def answer_request(self, session: Session, number: int, request: Frame) -> None:
        """Answer one request."""
        assert session.member is not None
        try:
            response = await self._handle_request(session.member.number, request)
            if isinstance(response, Publisher):
                session.attach_publisher(number, response)
                return
            code, body = RESPONSE, response
        except Refused as reason:
            self.audit.record_event(session.source, f"refused: {reason}")
            code, body = ERROR_CODES[type(reason)], str(reason).encode()[:MAX_REFUSAL_BYTES]
        except FrameError as reason:
            self.audit.record_event(session.source, f"sent what cannot be read: {reason}")
            code, body = UNREADABLE, str(reason).encode()[:MAX_REFUSAL_BYTES]
        try:
            await session.send(number, code, body)
        except ConnectionError:
            pass  # the caller is gone, and will ask again


def _release_connection(
    session: Session, connection: socket.socket, task: "asyncio.Task[Any]"
) -> None:
    """Release a connection whose task ended early."""
    if not session.is_started:
        connection.close()
    if not task.cancelled():
        task.exception()


def _unknown_key(key: str, name: str, own_version: int, their_version: int) -> Refused:
    """Explain why a key of this authority is refused; the claimed version decides nothing else."""
    if their_version > own_version:
        return OutdatedRoster(
            f"{name} has roster {own_version}, not yet {their_version}; start it again with "
            f"its new bundle"
        )
    superseded = f": roster {their_version} is superseded, take the new bundle" * (
        their_version < own_version
    )
    return Refused(
        f"the certificate is of this federation, but its key {key[:16]}... is not in roster "
        f"{own_version} of {name}{superseded}"
    )


def _describe_failure(cause: BaseException) -> str:
    """Explain why a connection failed."""
    if isinstance(cause, ssl.SSLError):
        return f"no mutual TLS ({cause.reason or cause})"
    if isinstance(cause, TimeoutError) or "handshake is taking longer" in str(cause):
        return f"no proof of a key within {AUTHENTICATION_SECONDS:g} s"
    return str(cause) or type(cause).__name__
