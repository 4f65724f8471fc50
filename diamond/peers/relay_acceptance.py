"""Acceptance of the connections that a neighbour dials through a relay."""

import asyncio
import socket
from collections.abc import Awaitable, Callable

from .audit import Audit
from .connection_errors import describe_error
from .credentials import Credentials
from .relay_handshake import join_through_relay
from .timeouts import RETRY_PAUSES


async def accept_through_relay(
    credentials: Credentials,
    relay: str,
    number: int,
    audit: Audit,
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
