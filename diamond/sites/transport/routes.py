"""Routes: for every edge of a site, which end dials, and whether a relay lies between.

If both ends accept connections, each dials the other and asks on its own connection. If one end
does not, it dials, and both ends ask on that connection. If neither does, both dial a relay; the
end with the higher number is the client of the TLS connection through it. `dial` opens a TLS
connection to a member, directly or through a relay, to nobody else.
"""

import asyncio
from typing import Any, Literal, NamedTuple

from ..identity.certificate_holder import find_neighbour
from ..identity.credentials import Credentials
from ..identity.roster import Bundle, Member
from .error_texts import describe_error
from .errors import REVOKED, WRONG_KEY, Refused, Unreachable
from .packet_stream import PacketStream
from .relay_handshake import join_through_relay
from .sockets import enable_keepalive
from .tls import peer_identity

RouteKind = Literal["both", "dial", "await", "dial relay", "await relay"]


class Route(NamedTuple):
    """Way to one member: how its connection comes about, seen from this site."""

    member: Member
    kind: RouteKind

    @property
    def dials(self) -> bool:
        """Return whether this site opens the connection on which it asks."""
        return self.kind in ("both", "dial", "dial relay")

    @property
    def is_shared(self) -> bool:
        """Return whether both ends ask on one connection."""
        return self.kind != "both"


def find_route(bundle: Bundle, member: Member) -> Route:
    """Return the route to a neighbour, or to the site itself, which is always dialed."""
    me = bundle.me
    if member.number == me.number or (me.address and member.address):
        return Route(member, "both")
    if member.address:
        return Route(member, "dial")
    if me.address:
        return Route(member, "await")
    return Route(member, "dial relay" if me.number > member.number else "await relay")


def describe_route(bundle: Bundle, member: Member) -> str:
    """Describe who dials on the edge to that neighbour."""
    me, kind = bundle.me, find_route(bundle, member).kind
    relays = ", ".join(bundle.roster.all_relays)
    return {
        "both": "both dial",
        "dial": f"{me.name} dials",
        "await": f"{member.name} dials",
        "dial relay": f"{me.name} dials through {relays}",
        "await relay": f"{member.name} dials through {relays}",
    }[kind]


TLS_OPTIONS: dict[str, Any] = {"server_hostname": "", "ssl_shutdown_timeout": 1.0}


async def dial(
    route: Route, packets: PacketStream, credentials: Credentials, seconds: float
) -> None:
    """Open a connection on which only the member of `route` can read.

    The caller limits the time to `seconds`; each relay gets an equal share.
    """
    loop, tls = asyncio.get_running_loop(), credentials.client_tls
    if route.kind in ("dial relay", "await relay"):
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
    except Refused as cause:
        raise Unreachable(REVOKED if str(cause) == REVOKED else WRONG_KEY) from None
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
