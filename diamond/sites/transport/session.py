"""Session of one connection to this site, unauthenticated until its first packet is read.

Each process of a site has a random instance number, which it sends first. If a member has a session
of another instance, that one is probed: if it lives, the bundle is used twice, and the newcomer is
refused; if it is silent, its process is dead, and the newcomer takes its place.
"""

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from cryptography import x509

from ..identity.certificate_holder import find_neighbour
from ..identity.roster import Member
from . import packet_stream, wire_format
from .errors import Refused, encode_error
from .messages import SessionOpening
from .packet_stream import PacketStream
from .subscription import MAX_QUEUED, Publisher
from .tls import peer_identity
from .wire_format import MAX_REQUEST_BYTES, Frame, FrameError

if TYPE_CHECKING:
    from .server import Server

GRACE_SECONDS = 1.0  # for the other end to read why its connection is closed
PROBE_SECONDS = 3.0  # in which a process that lives answers a probe
MAX_INSTANCE_BYTES = 16


class Session:
    """One connection to the server, unauthenticated until its first packet is read.

    `expected` is the only member that it may be of, if it came through a relay. On a connection
    that this site has dialed, `packets` are given, and `admit` has the member.
    """

    def __init__(
        self,
        server: "Server",
        address: str,
        expected: int | None = None,
        packets: PacketStream | None = None,
    ):
        self.server, self.address, self.expected = server, address, expected
        self.member: Member | None = None
        self.certificate: x509.Certificate | None = None
        self.instance = b""  # of the process at the other end, if it runs the site
        self.sign_of_life = asyncio.Event()  # set by each request
        self.packets = packets or PacketStream(MAX_REQUEST_BYTES, self.on_packet)
        self.authenticated: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if packets is None:
            self.packets.close_listeners.append(self._on_early_close)
        self.packets.on_too_long = self._on_too_long
        self.replies: set[asyncio.Task[Any]] = set()
        self.unread_responses = 0  # long responses that the other end has yet to read
        self.pending_pushes: list[asyncio.Task[Any]] = []  # pending messages
        self.timer: Any = None
        self.is_started = self.is_evicted = self.is_probing = False

    @property
    def source(self) -> str:
        """Return the name and address of the other end."""
        return f"{self.member.name} at {self.address}" if self.member else self.address

    def evict(self, task: "asyncio.Task[Any]") -> None:
        """Close an unauthenticated connection."""
        self.is_evicted = True
        task.cancel()

    def _on_early_close(self) -> None:
        if not self.authenticated.done():
            cause = self.packets.cause or ConnectionResetError("closed before it said anything")
            self.authenticated.set_exception(cause)

    def on_packet(self, number: int, code: int, body: memoryview) -> None:
        """Handle a packet: the proof of identity first, then requests."""
        if self.member is None:
            if self.is_probing:
                self.packets.abort(ConnectionAbortedError("a request before it was admitted"))
            elif not self.authenticated.done():
                self._authenticate(number, body)
            return
        self.sign_of_life.set()
        if code != packet_stream.REQUEST or not self.server.admits_request(self):
            self.packets.abort(ConnectionAbortedError("too many requests at once"))
            return
        task = self.server.start_task(self.server.answer_request(self, number, bytes(body)))
        self.replies.add(task)
        task.add_done_callback(self.replies.discard)

    @property
    def unread(self) -> int:
        """Return the number of unread responses in memory."""
        return self.unread_responses + len(self.pending_pushes)

    async def send(self, number: int, code: int, body: Frame) -> None:
        """Send a response; a long one counts until the other end has read it."""
        if len(body) <= packet_stream.CHUNK_BYTES:
            return await self.packets.send(number, code, body)
        self.unread_responses += 1
        try:
            self.server.limit_unread(self)
            await self.packets.send(number, code, body)
        finally:
            self.unread_responses -= 1

    def attach_publisher(self, number: int, publisher: Publisher) -> None:
        """Send the messages of the publisher as responses to that request."""
        publisher.send = lambda content: self._push(number, packet_stream.RESPONSE, content)
        publisher.refuse = lambda cause: self._push(number, *encode_error(cause))
        publisher.on_opened()

    def _push(self, number: int, code: int, content: Frame) -> bool:
        """Send immediately, or after pending messages unless there are too many."""
        try:
            if not self.pending_pushes and self.packets.try_send(number, code, content):
                return True
        except ConnectionError:
            return False
        if len(self.pending_pushes) >= MAX_QUEUED or self.packets.closed.done():
            return False
        before = self.pending_pushes[-1] if self.pending_pushes else None
        task = self.server.start_task(self._push_after(before, number, code, content))
        self.pending_pushes.append(task)
        task.add_done_callback(self.pending_pushes.remove)
        self.server.limit_unread(self)
        return True

    async def _push_after(self, before: Any, number: int, code: int, content: Frame) -> None:
        if before is not None:
            await asyncio.wait([before])
        with suppress(ConnectionError):  # it will be requested on another connection
            await self.packets.send(number, code, content)

    def _on_too_long(self, number: int, cause: packet_stream.PacketTooLong) -> None:
        """Report the error, then close the connection; discard what arrives meanwhile."""
        if self.member is None:
            self.packets.abort(cause)
            return
        self.server.audit.record_event(self.source, f"closed: {cause}")
        self.packets.write_small(number, packet_stream.UNREADABLE, str(cause).encode())
        asyncio.get_running_loop().call_later(GRACE_SECONDS, self.packets.abort, cause)

    def _authenticate(self, number: int, body: memoryview) -> None:
        """Authenticate: the first packet has the roster version, the key has the identity."""
        try:
            header, _ = wire_format.unpack(bytes(body), MAX_REQUEST_BYTES)
            opening = SessionOpening.decode(header)
            ssl_object = self.packets.transport.get_extra_info("ssl_object")
            certificate, expires = peer_identity(ssl_object)
            version = opening.roster if isinstance(opening.roster, int) else 0
            member = find_neighbour(certificate, self.server.bundle, version)
            if self.expected not in (None, member.number):
                raise Refused(f"{member.name} is not the site that this connection leads to")
        except (Refused, FrameError) as reason:
            self._reject(number, reason)
            return
        if isinstance(opening.instance, bytes):
            self.instance = opening.instance[:MAX_INSTANCE_BYTES]

        def accept() -> None:
            self.admit(member, certificate, expires)
            self.packets.write_small(number, packet_stream.RESPONSE, b"")
            self.authenticated.set_result(None)
            if opening.answers is True:
                self.server.attach_client(self)

        if rivals := self.server.find_rivals(self, member):
            self.is_probing = True
            self.server.start_task(self._replace_rivals(number, member, rivals, accept))
        else:
            accept()

    def _reject(self, number: int, reason: Refused | FrameError) -> None:
        self.packets.write_small(number, *encode_error(reason))
        self.authenticated.set_exception(reason)

    async def _replace_rivals(
        self, number: int, member: Member, rivals: "list[Session]", accept: Callable[[], None]
    ) -> None:
        """Accept this connection if the other processes of the member are dead."""
        answers = await asyncio.gather(*(rival.lives() for rival in rivals))
        living = [rival for rival, is_alive in zip(rivals, answers) if is_alive]
        for rival in rivals:
            if rival not in living:
                rival.packets.abort(ConnectionAbortedError("another process took its place"))
        if self.authenticated.done() or self.packets.closed.done():
            return
        if living:
            places = " and ".join(rival.address for rival in living)
            self._reject(
                number,
                Refused(
                    f"{member.name} runs already, with the same keys, at {places}, and two "
                    f"processes of one site would contradict each other: stop one of them, and "
                    f"remove the bundle from its machine"
                ),
            )
        else:
            accept()

    async def lives(self) -> bool:
        """Return whether the process at the other end answers a probe."""
        self.sign_of_life.clear()
        try:
            self.packets.try_send(0, packet_stream.PROBE, b"")
            async with asyncio.timeout(PROBE_SECONDS):
                await self.sign_of_life.wait()
        except (ConnectionError, TimeoutError):
            return False
        return True

    def admit(self, member: Member, certificate: x509.Certificate, expires: float) -> None:
        """Answer `member` on this connection until its certificate expires."""
        self.member, self.certificate = member, certificate
        self.server.add_session(self)
        left = max(0.0, expires - time.time())
        self.timer = asyncio.get_running_loop().call_later(left, self._on_expiry)

    def _on_expiry(self) -> None:
        self.server.audit.record_event(self.source, "closed: its certificate has expired")
        self.packets.abort(ConnectionAbortedError("the certificate has expired"))
