"""Dialing: a TLS connection to a member, directly or through a relay, to nobody else."""

import asyncio
from typing import Any

from ..identity.credentials import Credentials
from ..identity.membership import find_neighbour
from ..identity.roster import Member
from .errors import WRONG_KEY, Refused, Unreachable, describe_error
from .packet_stream import PacketStream
from .relay_handshake import join_through_relay
from .routes import Route
from .sockets import enable_keepalive
from .tls import peer_identity

TLS_OPTIONS: dict[str, Any] = {"server_hostname": "", "ssl_shutdown_timeout": 1.0}


async def dial(
    route: Route, packets: PacketStream, credentials: Credentials, seconds: float
) -> None:
    """Open a connection on which only the member of `route` can read.

    The caller limits the time to `seconds`; each relay gets an equal share.
    """
    loop, tls = asyncio.get_running_loop(), credentials.client_tls
    if route.is_relayed:
        connection = await _join_any_relay(route.member, credentials, seconds)
        transport, _ = await loop.create_connection(
            lambda: packets, sock=connection, ssl=tls, **TLS_OPTIONS
        )
    elif not route.member.address:
        raise Unreachable("it has no address: give --listen here, as to `diamond net start`")
    else:
        host, port = route.member.address.rsplit(":", 1)
        transport, _ = await loop.create_connection(
            lambda: packets, host.strip("[]"), int(port), ssl=tls, **TLS_OPTIONS
        )
    enable_keepalive(transport.get_extra_info("socket"), seconds)
    try:
        certificate, _ = peer_identity(transport.get_extra_info("ssl_object"))
        holder = find_neighbour(certificate, credentials.bundle, 0)
    except Refused:
        raise Unreachable(WRONG_KEY) from None
    if holder.number != route.member.number:
        raise Unreachable(WRONG_KEY)


async def _join_any_relay(member: Member, credentials: Credentials, seconds: float) -> Any:
    """Return a connection to the member through the first relay that has one."""
    bundle, reasons = credentials.bundle, []
    relays = bundle.roster.all_relays
    for name, address in relays.items():
        try:
            async with asyncio.timeout(0.9 * seconds / len(relays)):
                return await join_through_relay(address, bundle, member)
        except TimeoutError:
            reasons.append(f"{name}: {member.name} is not connected to this relay")
        except OSError as cause:
            reasons.append(f"{name}: {describe_error(cause)}")
    raise Unreachable("; ".join(reasons) or "no relay in the roster")
