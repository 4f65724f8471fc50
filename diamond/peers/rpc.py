"""RPC client: one connection per neighbour, opened on demand and kept."""

import asyncio
import socket
import ssl
from dataclasses import replace
from itertools import count
from typing import Any

from . import wire_format
from .call_errors import Differs, Outdated, Refused, Stopped, Unreachable
from .packet_stream import ANSWER, ASK, DIFFERS, OUTDATED, REFUSED, STOPPED, Packets, TooLong
from .roster import Bundle, Member, host
from .subscription import Following
from .text_sanitizing import printable
from .timeouts import Limits
from .tls import context
from .wire_format import Frame

FAULTS = {STOPPED: Stopped, DIFFERS: Differs, REFUSED: Refused}
IDLE = 10  # seconds of silence after which the system probes the other end


class Client:
    """Client of the neighbours of this site; responses have at most `most` bytes.

    It can also call the site itself, at its own address or at `own`.
    """

    def __init__(
        self, bundle: Bundle, most: int, limits: Limits = Limits(), own: str | None = None
    ):
        secured, me = context(bundle, serves=False), replace(bundle.me, address=own or "")
        me = me if own else bundle.me
        opening = wire_format.pack({"kind": "open", "roster": bundle.roster.version})
        self._lines = {
            member.number: Line(member, secured, opening, most, limits)
            for member in (*bundle.neighbours, me)
        }

    async def __aenter__(self) -> "Client":
        return self

    async def __aexit__(self, *error: object) -> None:
        await asyncio.gather(*(line.close() for line in self._lines.values()))

    async def call(self, neighbour: int, request: Frame) -> Frame:
        """See `diamond.peers.client.Transport`."""
        return await self._lines[neighbour].call(request)

    def follow(self, neighbour: int, request: Frame, into: Following) -> None:
        """See `diamond.peers.client.Transport`."""
        self._lines[neighbour].follow(request, into)


class Line:
    """Connection to one member."""

    def __init__(
        self, member: Member, secured: ssl.SSLContext, opening: Frame, most: int, limits: Limits
    ):
        self.member, self.secured, self.opening = member, secured, opening
        self.most, self.limits = most, limits
        self._packets: Packets | None = None
        self._dialling = asyncio.Lock()
        self._numbers = count(1)
        self._awaited: dict[int, asyncio.Future[tuple[int, memoryview]]] = {}
        self._following: tuple[int, Following] = 0, Following(0)

    async def call(self, request: Frame) -> Any:
        """Send a request and return its response."""
        clock = asyncio.get_running_loop().time
        begun = clock()
        try:
            async with asyncio.timeout(self.limits.round):
                code, body = await self._exchange(await self._connected(), request)
        except TimeoutError:
            raise Unreachable(f"no answer within {self.limits.round:g} s") from None
        finally:
            if clock() - begun >= 0.9 * self.limits.round and self._packets is not None:
                self._packets.fail(ConnectionAbortedError("silent"))  # the next call dials again
        return self._read(code, body)

    def follow(self, request: Frame, into: Following) -> None:
        """Start a subscription in place of the earlier one."""
        packets, number = self._packets, next(self._numbers)
        self._following[1].end()
        self._following = number, into
        try:
            if packets is None or not packets.push(number, ASK, request):
                into.end()
        except ConnectionError:
            into.end()

    async def _exchange(self, packets: Packets, request: Frame) -> tuple[int, memoryview]:
        number = next(self._numbers)
        answer = self._awaited[number] = asyncio.get_running_loop().create_future()
        try:
            await packets.send(number, ASK, request)
            return await answer
        except ConnectionError as cause:
            raise Unreachable(_plain(packets.cause or cause)) from None
        finally:
            self._awaited.pop(number, None)

    async def _connected(self) -> Packets:
        packets = self._packets
        if packets is not None and not packets.lost.done():
            return packets
        async with self._dialling:
            if self._packets is None or self._packets.lost.done():
                self._packets = await self._dial()
            return self._packets

    async def _dial(self) -> Packets:
        """Open a connection on which the other end has admitted this site."""
        packets = Packets(self.most, self._heard)
        packets.on_lost = lambda: self._lost(packets)
        name, port = self.member.address.rsplit(":", 1)
        try:
            async with asyncio.timeout(self.limits.connect):
                transport, _ = await asyncio.get_running_loop().create_connection(
                    lambda: packets,
                    name.strip("[]"),
                    int(port),
                    ssl=self.secured,
                    server_hostname=host(self.member.fingerprint),
                    ssl_shutdown_timeout=1.0,
                )
                _watched(transport.get_extra_info("socket"), self.limits.connect)
                code, body = await self._exchange(packets, self.opening)
                self._read(code, body)
        except TimeoutError:
            packets.fail(ConnectionAbortedError("no answer"))
            raise Unreachable(f"no connection within {self.limits.connect:g} s") from None
        except OSError as cause:
            packets.fail(ConnectionAbortedError("refused"))
            if isinstance(cause, Unreachable | Refused):
                raise
            raise Unreachable(_plain(cause)) from None
        except BaseException:
            packets.fail(ConnectionAbortedError("not needed any more"))
            raise
        return packets

    def _read(self, code: int, body: memoryview) -> Any:
        if code == ANSWER:
            return body
        said = printable(bytes(body).decode(errors="replace"))
        if code in FAULTS:
            raise FAULTS[code](said)
        raise Unreachable(said) from (Outdated(said) if code == OUTDATED else None)

    def _heard(self, number: int, code: int, body: memoryview) -> None:
        if number == self._following[0]:
            self._came(self._following[1], code, body)
            return
        awaited = self._awaited.get(number)
        if awaited is not None and not awaited.done():
            awaited.set_result((code, body))

    def _came(self, into: Following, code: int, body: memoryview) -> None:
        """Handle a packet of the subscription."""
        if code != ANSWER:
            said = printable(bytes(body).decode(errors="replace"))
            into.end(FAULTS[code](said) if code in FAULTS else None)
        elif not into.heard(body) and self._packets is not None:
            self._packets.fail(ConnectionAbortedError("more messages than there can be"))

    def _lost(self, packets: Packets) -> None:
        if packets is not self._packets and self._packets is not None:
            return  # of an earlier connection
        self._following[1].end()
        said = packets.cause or ConnectionResetError("the connection was closed")
        for awaited in self._awaited.values():
            if not awaited.done():
                awaited.set_exception(ConnectionResetError(str(said)))

    async def close(self) -> None:
        """Close the connection."""
        packets = self._packets
        if packets is not None and not packets.lost.done():
            packets.close()
            await asyncio.wait([packets.lost], timeout=1.0)
            packets.fail(ConnectionAbortedError("closed"))


def _watched(connection: Any, seconds: float) -> None:
    """Enable keep-alive probes, if the system has them."""
    options = {
        "TCP_KEEPIDLE": IDLE,
        "TCP_KEEPINTVL": max(1, int(seconds) // 3),
        "TCP_KEEPCNT": 3,
        "TCP_USER_TIMEOUT": int(1000 * (IDLE + seconds)),
    }
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in options.items():
        if hasattr(socket, name):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def _plain(cause: BaseException) -> str:
    """Rephrase common errors of the library in plain words."""
    authority = "its certificate is not of this federation's authority"
    if isinstance(cause, ssl.SSLCertVerificationError):
        if "expired" in cause.verify_message or "not yet valid" in cause.verify_message:
            return "its certificate has expired, or one of the clocks is wrong"
        name = "ostname" in cause.verify_message
        return "its key is not the one in the roster" if name else authority
    if isinstance(cause, TooLong):
        return "an answer larger than any message of this run"
    if isinstance(cause, ConnectionRefusedError) or "Connect call failed" in str(cause):
        return "nothing listens there"
    if isinstance(cause, socket.gaierror):
        return "no machine of that name is known"
    known = {
        "CERTIFICATE_EXPIRED": "it does not take this site's certificate, which has expired",
        "UNKNOWN_CA": "it does not take this site's certificate, which is of another authority",
        "BAD_CERTIFICATE": "it does not take this site's certificate",
        "CERTIFICATE_UNKNOWN": "it does not take this site's certificate",
        "CERTIFICATE_REQUIRED": "it does not take this site's certificate",
        "DECRYPT_ERROR": "it does not take this site's certificate",
        "WRONG_VERSION_NUMBER": "what listens there does not speak TLS",
    }
    said = f"{getattr(cause, 'reason', None) or ''} {cause}"
    plain = next((plain for mark, plain in known.items() if mark in said.upper()), None)
    return plain or printable(getattr(cause, "strerror", None) or cause)
