"""RPC client: one connection per neighbour, opened on demand and kept."""

import asyncio
import socket
import ssl
from dataclasses import replace
from itertools import count
from typing import Any

from . import wire_format
from .call_errors import OutdatedRoster, Refused, RunFailed, RunMismatch, Unreachable
from .packet_stream import (
    OUTDATED_ROSTER,
    REFUSED,
    REQUEST,
    RESPONSE,
    RUN_FAILED,
    RUN_MISMATCH,
    PacketStream,
    PacketTooLong,
)
from .roster import Bundle, Member, certificate_name
from .subscription import Subscription
from .text_sanitizing import sanitize_text
from .timeouts import Timeouts
from .tls import tls_context
from .wire_format import Frame

ERRORS = {RUN_FAILED: RunFailed, RUN_MISMATCH: RunMismatch, REFUSED: Refused}
KEEPALIVE_IDLE = 10  # seconds of silence after which the system probes the other end


class RpcClient:
    """Client of the neighbours of this site; responses have at most `max_bytes` bytes.

    It can also call the site itself, at its roster address or at `own_address`.
    """

    def __init__(
        self,
        bundle: Bundle,
        max_bytes: int,
        timeouts: Timeouts = Timeouts(),
        own_address: str | None = None,
    ):
        tls, me = (
            tls_context(bundle, is_server=False),
            replace(bundle.me, address=own_address or ""),
        )
        me = me if own_address else bundle.me
        opening = wire_format.pack({"kind": "open", "roster": bundle.roster.version})
        self._connections = {
            member.number: RpcConnection(member, tls, opening, max_bytes, timeouts)
            for member in (*bundle.neighbours, me)
        }

    async def __aenter__(self) -> "RpcClient":
        return self

    async def __aexit__(self, *error: object) -> None:
        await asyncio.gather(*(connection.close() for connection in self._connections.values()))

    async def send_request(self, neighbour: int, request: Frame) -> Frame:
        """See `diamond.peers.client.Transport`."""
        return await self._connections[neighbour].send_request(request)

    def subscribe(self, neighbour: int, request: Frame, subscription: Subscription) -> None:
        """See `diamond.peers.client.Transport`."""
        self._connections[neighbour].subscribe(request, subscription)


class RpcConnection:
    """Connection to one member."""

    def __init__(
        self,
        member: Member,
        tls: ssl.SSLContext,
        opening: Frame,
        max_bytes: int,
        timeouts: Timeouts,
    ):
        self.member, self.tls, self.opening = member, tls, opening
        self.max_bytes, self.timeouts = max_bytes, timeouts
        self._packets: PacketStream | None = None
        self._connect_lock = asyncio.Lock()
        self._request_numbers = count(1)
        self._pending: dict[int, asyncio.Future[tuple[int, memoryview]]] = {}
        self._subscription: tuple[int, Subscription] = 0, Subscription(0)

    async def send_request(self, request: Frame) -> Any:
        """Send a request and return its response."""
        clock = asyncio.get_running_loop().time
        start = clock()
        try:
            async with asyncio.timeout(self.timeouts.round):
                code, body = await self._exchange(await self._ensure_connected(), request)
        except TimeoutError:
            raise Unreachable(f"no answer within {self.timeouts.round:g} s") from None
        finally:
            if clock() - start >= 0.9 * self.timeouts.round and self._packets is not None:
                self._packets.abort(ConnectionAbortedError("silent"))  # the next call dials again
        return self._read(code, body)

    def subscribe(self, request: Frame, subscription: Subscription) -> None:
        """Start a subscription in place of the earlier one."""
        packets, number = self._packets, next(self._request_numbers)
        self._subscription[1].end()
        self._subscription = number, subscription
        try:
            if packets is None or not packets.try_send(number, REQUEST, request):
                subscription.end()
        except ConnectionError:
            subscription.end()

    async def _exchange(self, packets: PacketStream, request: Frame) -> tuple[int, memoryview]:
        number = next(self._request_numbers)
        response = self._pending[number] = asyncio.get_running_loop().create_future()
        try:
            await packets.send(number, REQUEST, request)
            return await response
        except ConnectionError as cause:
            raise Unreachable(_describe_error(packets.cause or cause)) from None
        finally:
            self._pending.pop(number, None)

    async def _ensure_connected(self) -> PacketStream:
        packets = self._packets
        if packets is not None and not packets.closed.done():
            return packets
        async with self._connect_lock:
            if self._packets is None or self._packets.closed.done():
                self._packets = await self._connect()
            return self._packets

    async def _connect(self) -> PacketStream:
        """Open a connection on which the other end has admitted this site."""
        packets = PacketStream(self.max_bytes, self._on_packet)
        packets.on_closed = lambda: self._on_closed(packets)
        name, port = self.member.address.rsplit(":", 1)
        try:
            async with asyncio.timeout(self.timeouts.connect):
                transport, _ = await asyncio.get_running_loop().create_connection(
                    lambda: packets,
                    name.strip("[]"),
                    int(port),
                    ssl=self.tls,
                    server_hostname=certificate_name(self.member.fingerprint),
                    ssl_shutdown_timeout=1.0,
                )
                _enable_keepalive(transport.get_extra_info("socket"), self.timeouts.connect)
                code, body = await self._exchange(packets, self.opening)
                self._read(code, body)
        except TimeoutError:
            packets.abort(ConnectionAbortedError("no answer"))
            raise Unreachable(f"no connection within {self.timeouts.connect:g} s") from None
        except OSError as cause:
            packets.abort(ConnectionAbortedError("refused"))
            if isinstance(cause, Unreachable | Refused):
                raise
            raise Unreachable(_describe_error(cause)) from None
        except BaseException:
            packets.abort(ConnectionAbortedError("not needed any more"))
            raise
        return packets

    def _read(self, code: int, body: memoryview) -> Any:
        if code == RESPONSE:
            return body
        reason = sanitize_text(bytes(body).decode(errors="replace"))
        if code in ERRORS:
            raise ERRORS[code](reason)
        raise Unreachable(reason) from (OutdatedRoster(reason) if code == OUTDATED_ROSTER else None)

    def _on_packet(self, number: int, code: int, body: memoryview) -> None:
        if number == self._subscription[0]:
            self._on_subscription_packet(self._subscription[1], code, body)
            return
        pending = self._pending.get(number)
        if pending is not None and not pending.done():
            pending.set_result((code, body))

    def _on_subscription_packet(
        self, subscription: Subscription, code: int, body: memoryview
    ) -> None:
        """Handle a packet of the subscription."""
        if code != RESPONSE:
            reason = sanitize_text(bytes(body).decode(errors="replace"))
            subscription.end(ERRORS[code](reason) if code in ERRORS else None)
        elif not subscription.receive(body) and self._packets is not None:
            self._packets.abort(ConnectionAbortedError("more messages than there can be"))

    def _on_closed(self, packets: PacketStream) -> None:
        if packets is not self._packets and self._packets is not None:
            return  # of an earlier connection
        self._subscription[1].end()
        error = packets.cause or ConnectionResetError("the connection was closed")
        for pending in self._pending.values():
            if not pending.done():
                pending.set_exception(ConnectionResetError(str(error)))

    async def close(self) -> None:
        """Close the connection."""
        packets = self._packets
        if packets is not None and not packets.closed.done():
            packets.close()
            await asyncio.wait([packets.closed], timeout=1.0)
            packets.abort(ConnectionAbortedError("closed"))


def _enable_keepalive(connection: Any, seconds: float) -> None:
    """Enable keep-alive probes, if the system has them."""
    options = {
        "TCP_KEEPIDLE": KEEPALIVE_IDLE,
        "TCP_KEEPINTVL": max(1, int(seconds) // 3),
        "TCP_KEEPCNT": 3,
        "TCP_USER_TIMEOUT": int(1000 * (KEEPALIVE_IDLE + seconds)),
    }
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in options.items():
        if hasattr(socket, name):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def _describe_error(cause: BaseException) -> str:
    """Rephrase common errors of the library in plain words."""
    authority = "its certificate is not of this federation's authority"
    if isinstance(cause, ssl.SSLCertVerificationError):
        if "expired" in cause.verify_message or "not yet valid" in cause.verify_message:
            return "its certificate has expired, or one of the clocks is wrong"
        name = "ostname" in cause.verify_message
        return "its key is not the one in the roster" if name else authority
    if isinstance(cause, PacketTooLong):
        return "an answer larger than any message of this run"
    if isinstance(cause, ConnectionRefusedError) or "Connect call failed" in str(cause):
        return "nothing listens there"
    if isinstance(cause, socket.gaierror):
        return "no machine of that name is known"
    descriptions = {
        "CERTIFICATE_EXPIRED": "it does not take this site's certificate, which has expired",
        "UNKNOWN_CA": "it does not take this site's certificate, which is of another authority",
        "BAD_CERTIFICATE": "it does not take this site's certificate",
        "CERTIFICATE_UNKNOWN": "it does not take this site's certificate",
        "CERTIFICATE_REQUIRED": "it does not take this site's certificate",
        "DECRYPT_ERROR": "it does not take this site's certificate",
        "WRONG_VERSION_NUMBER": "what listens there does not speak TLS",
    }
    text = f"{getattr(cause, 'reason', None) or ''} {cause}"
    description = next(
        (description for code, description in descriptions.items() if code in text.upper()), None
    )
    return description or sanitize_text(getattr(cause, "strerror", None) or cause)
