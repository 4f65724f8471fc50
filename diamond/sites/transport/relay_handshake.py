"""Handshake of a site with a relay, before the bytes of its connection to another site.

    site    5 bytes    magic and version
    relay   32 bytes   a random number, for this connection only
    site    2 bytes    length
            msgpack    names of both sites, the site's certificate, its roster's version, and a
                       signature of all this and of the random number with the site's key
    relay   1 byte     JOINED once the other site is connected, or REFUSED
            2 bytes    length, and the reason, if refused

A relay has no key. It has the signed roster, and verifies that the authority signed the
certificate, that its holder is a member and owns the key, and that both sites are neighbours. A
recorded handshake is useless: its signature covers another random number. The relay proves nothing,
since it is trusted with nothing: the two sites verify each other by TLS through it.

`accept_through_relay` accepts the connections that a neighbour dials through a relay.
"""

import asyncio
import os
import socket
import struct
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, NamedTuple

import msgpack
from cryptography.hazmat.primitives.asymmetric import ec

from ...core.parsing import refuse_unreadable
from ..identity.certificate_holder import find_holder, no_neighbour, unknown_key, verify_certificate
from ..identity.credentials import Credentials
from ..identity.private_keys import fingerprint
from ..identity.roster import SIGNATURE_ALGORITHM, Bundle, Member, Roster
from .audit import Audit, sanitize_text
from .error_texts import describe_error
from .errors import Refused, Unreachable
from .sockets import enable_keepalive
from .timeouts import RETRY_PAUSES

MAGIC = b"DMRL\x01"
NONCE_BYTES, MAX_HELLO_BYTES, MAX_REASON_BYTES = 32, 4096, 400
KEEPALIVE_SECONDS = 10.0  # until a relay that answers no probe counts as lost
LENGTH = struct.Struct("<H")
JOINED, REFUSED = b"\x01", b"\x02"
CONTEXT = b"diamond: a site asks a relay for a connection\0"


class RelayRequest(NamedTuple):
    """Verified request of one site for a connection to another."""

    site: Member
    other: Member
    version: int  # of the site's roster


def encode_hello(bundle: Bundle, other: str, nonce: bytes) -> bytes:
    """Encode and sign the request of this site for a connection to `other`."""
    fields: list[Any] = [bundle.me.name, other, bundle.roster.version]
    signature = bundle.sign(_signed_bytes(nonce, fields))
    return msgpack.packb([*fields, bundle.encoded_certificate, signature])


def verify_hello(content: bytes, nonce: bytes, ca: bytes, roster: Roster) -> RelayRequest:
    """Verify the request of a site; raise `Refused` with the reason."""
    with refuse_unreadable(Refused, "no request of a site"):
        name, other_name, version, certificate_bytes, signature = msgpack.unpackb(
            content, max_ext_len=0
        )
        if not (isinstance(name, str) and isinstance(other_name, str) and type(version) is int):
            raise Refused("no request of a site")
    certificate = verify_certificate(certificate_bytes, ca, roster)
    with refuse_unreadable(Refused, "its signature is not of this connection, so it proves no key"):
        key = certificate.public_key()
        assert isinstance(key, ec.EllipticCurvePublicKey)
        signed = _signed_bytes(nonce, [name, other_name, version])
        key.verify(signature, signed, SIGNATURE_ALGORITHM)
    site, other = find_holder(certificate, roster), roster.by_name(other_name)
    others = {member.number for member in roster.members if member.name == other_name}
    if site is None:
        raise unknown_key(fingerprint(key), "this relay", roster.version, version)
    if site.name != name:
        raise Refused(f"{site.name} asks in the name of {sanitize_text(name, 40)}")
    if other is None or not others & {*site.neighbours}:
        shown_name = sanitize_text(other_name, 40)
        raise no_neighbour(shown_name, site.name, roster.version, version)
    # A site that rejoins runs as the earlier member until then: its name leads to both.
    return RelayRequest(roster.by_name(name) or site, other, version)


def _signed_bytes(nonce: bytes, fields: list[Any]) -> bytes:
    return CONTEXT + nonce + msgpack.packb(fields)


async def receive_hello(connection: socket.socket, ca: bytes, roster: Roster) -> RelayRequest:
    """Relay's end: read and verify the request of a site on a new connection."""
    if await _receive(connection, len(MAGIC)) != MAGIC:
        raise Refused("no request of a site, or of another version of diamond")
    nonce = os.urandom(NONCE_BYTES)
    await asyncio.get_running_loop().sock_sendall(connection, nonce)
    (length,) = LENGTH.unpack(await _receive(connection, LENGTH.size))
    if length > MAX_HELLO_BYTES:
        raise Refused(f"a request of {length} bytes")
    return verify_hello(await _receive(connection, length), nonce, ca, roster)


def encode_refusal(reason: object) -> bytes:
    """Encode the relay's refusal."""
    content = sanitize_text(str(reason)).encode()[:MAX_REASON_BYTES]
    return REFUSED + LENGTH.pack(len(content)) + content


async def join_through_relay(address: str, bundle: Bundle, other: Member) -> socket.socket:
    """Return a connection that leads to `other`, once it is connected to the same relay.

    The caller limits the time. Raises `Unreachable`: another relay, or a later attempt, may work.
    """
    connection = await connect_to(address)
    enable_keepalive(connection, KEEPALIVE_SECONDS)
    try:
        loop = asyncio.get_running_loop()
        await loop.sock_sendall(connection, MAGIC)
        hello = encode_hello(bundle, other.name, await _receive(connection, NONCE_BYTES))
        await loop.sock_sendall(connection, LENGTH.pack(len(hello)) + hello)
        if await _receive(connection, 1) == JOINED:
            return connection
        (length,) = LENGTH.unpack(await _receive(connection, LENGTH.size))
        reason = await _receive(connection, min(length, MAX_REASON_BYTES))
        raise Unreachable(f"the relay refuses: {sanitize_text(reason.decode(errors='replace'))}")
    except BaseException:
        connection.close()
        raise


async def probe_relay(address: str) -> None:
    """Wait for the first bytes of a relay; the caller limits the time."""
    connection = await connect_to(address)
    try:
        await asyncio.get_running_loop().sock_sendall(connection, MAGIC)
        await _receive(connection, NONCE_BYTES)
    finally:
        connection.close()


async def connect_to(address: str) -> socket.socket:
    """Return a connection to one of the addresses that `address` resolves to."""
    loop, (host, port) = asyncio.get_running_loop(), address.rsplit(":", 1)
    last: OSError = OSError("no machine of that name is known")
    for family, kind, protocol, _, place in await loop.getaddrinfo(
        host.strip("[]"), int(port), type=socket.SOCK_STREAM
    ):
        connection = socket.socket(family, kind, protocol)
        connection.setblocking(False)
        try:
            await loop.sock_connect(connection, place)
            with suppress(OSError):
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return connection
        except OSError as cause:
            connection.close()
            last = cause
        except BaseException:
            connection.close()
            raise
    raise last


async def _receive(connection: socket.socket, count: int) -> bytes:
    """Return exactly `count` bytes, none of what follows."""
    content = bytearray()
    while len(content) < count:
        part = await asyncio.get_running_loop().sock_recv(connection, count - len(content))
        if not part:
            raise ConnectionResetError("the other end closed the connection")
        content += part
    return bytes(content)


async def accept_through_relay(
    credentials: Credentials,
    relay: str,
    number: int,
    audit: Audit,
    *,
    on_connection: Callable[[socket.socket, str, str], Awaitable[bool]],
) -> None:
    """Pass on the connections of member `number` through that relay, one after another.

    `on_connection` gets each connection, not yet authenticated, and name and address of the relay;
    it returns whether the member has proved its key. A relay proves nothing: after a connection on
    which the member did not, the next one waits.
    """
    pause, last_reason = RETRY_PAUSES[0], ""
    while True:
        bundle = credentials.bundle
        member, place = bundle.roster.members[number], bundle.roster.all_relays.get(relay, "")
        try:
            if not place:
                raise OSError(f"roster {bundle.roster.version} has no relay {relay}")
            connection = await join_through_relay(place, bundle, member)
            if await on_connection(connection, relay, place):
                pause, last_reason = RETRY_PAUSES[0], ""
                continue
        except OSError as cause:
            if (reason := describe_error(cause)) != last_reason:
                audit.record_event(f"{relay} at {place}", reason)
            last_reason = reason
        await asyncio.sleep(pause)
        pause = min(2 * pause, RETRY_PAUSES[1])
