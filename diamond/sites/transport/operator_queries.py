"""Questions of an operator to running sites: directly where they can be dialed, or through the own.

A site that cannot be dialed answers through the operator's own site, which is connected to it. A
site without an address in the roster listens for its operator on loopback, with mutual TLS as
everywhere, and writes the address into its bundle.
"""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from ...metrics.site_status import NoStatus, SiteStatus
from ..identity.roster import Bundle, Member
from ..rounds.node_status import validate_status
from ..rounds.overview import new_query, read_records, verify_statuses
from .errors import Refused, Unreachable
from .messages import OverviewQuery, StatusQuery, StopRequest
from .routes import find_route
from .rpc import RpcClient
from .timeouts import Timeouts
from .wire_format import MAX_REQUEST_BYTES, FrameError, unpack

Answers = dict[str, SiteStatus | NoStatus]  # by site


async def query_members(
    site: Bundle,
    kind: type[StatusQuery | StopRequest],
    members: Sequence[Member],
    connect: float,
    *,
    own_address: str | None,
) -> Answers:
    """Request an answer from each member; {"error": reason} if a member does not answer."""

    async def query(client: RpcClient, member: Member) -> SiteStatus | NoStatus:
        try:
            request = kind(site.me.number).encode()
            header, _ = unpack(await client.send_request(member.number, request), MAX_REQUEST_BYTES)
            return validate_status(header, len(site.roster.members))
        except (Refused, Unreachable, FrameError) as cause:
            place = (own_address if member == site.me else "") or member.address
            return NoStatus(error=f"{place or member.name}: {cause}")

    dialed = [member for member in members if find_route(site, member).dials]
    timeouts = Timeouts(connect, connect)
    async with RpcClient(site, MAX_REQUEST_BYTES, timeouts, own_address) as client:
        answers = await asyncio.gather(*(query(client, member) for member in dialed))
    results = {member.name: answer for member, answer in zip(dialed, answers)}
    if len(dialed) < len(members):
        results = await query_federation(site, connect, own_address, hops=1) | results
    return {member.name: results[member.name] for member in members}


async def query_federation(
    site: Bundle, seconds: float, own_address: str | None, hops: int | None = None
) -> Answers:
    """Return the statuses that the own site collects from its neighbours, theirs, and so on."""
    number, members = site.me.number, site.roster.members
    query, hops = new_query(), len(members) if hops is None else hops
    statuses, reason = {}, "no answer from this site"  # type: dict[str, SiteStatus], str
    timeouts = Timeouts(seconds, 2 * seconds)
    async with RpcClient(site, MAX_REQUEST_BYTES, timeouts, own_address) as client:
        try:
            request = OverviewQuery(number, query, seconds, hops).encode()
            records = read_records(await client.send_request(number, request))
            statuses = verify_statuses(site, query, records)
        except (Refused, Unreachable, FrameError) as cause:
            reason = f"{site.me.name} does not run here ({cause})"
    return {member.name: statuses.get(member.name) or NoStatus(error=reason) for member in members}


LOOPBACK = "127.0.0.1:0"  # the system chooses the port
FILE = "operator.address"


@contextmanager
def publish_operator_address(folder: Path, listen: str, port: int) -> Iterator[None]:
    """Write the address into the bundle while the site runs, if the system has chosen its port."""
    if listen != LOOPBACK:
        yield
        return
    path = folder / FILE
    with suppress(OSError):  # a bundle that cannot be written: --listen gives the address
        path.write_text(f"{LOOPBACK.rsplit(':', 1)[0]}:{port}\n")
    try:
        yield
    finally:
        with suppress(OSError):
            path.unlink()


def operator_address(folder: Path, bundle: Bundle, listen: str | None) -> str:
    """Return the address of the running site for its operator; empty if it is unknown."""
    if listen or bundle.me.address:
        return listen or bundle.me.address
    with suppress(OSError):
        return (folder / FILE).read_text().strip()
    return ""
