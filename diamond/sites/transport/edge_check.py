"""Test of the edges of a site: each is dialed, or awaited, as in a run.

If the site runs, it is asked about neighbours that dial it. If not, this test listens and waits in
its place, and neighbours without an address can be tested at both ends at the same time.
"""

from collections.abc import Mapping
from contextlib import AsyncExitStack

from ..identity.handshake import describe_differences
from ..identity.roster import Bundle
from ..rounds.client import gather_or_cancel
from .errors import Refused, RunMismatch, Unreachable
from .messages import Greeting, GreetingAnswer, Ping, Pong, StatusQuery, decode_request
from .operator_queries import query_members
from .rpc import RpcClient
from .server import Server
from .timeouts import Timeouts
from .wire_format import MAX_REQUEST_BYTES, Frame, FrameError, unpack

GOOD = "good"


async def check_edges(
    site: Bundle, digests: Mapping[str, str], limits: Timeouts, own_address: str
) -> dict[str, str]:
    """Return "good" or the failure for each neighbour.

    `digests` of a run, if given, are compared with those of the neighbours. `own_address` is where
    the site listens, or would listen; it may be empty.
    """
    number = site.me.number
    request = Greeting(number, dict(digests)) if digests else Ping(number)
    running = None
    if own_address:
        query = query_members(site, StatusQuery, [site.me], limits.connect, own_address=own_address)
        status = (await query)[site.me.name]
        running = None if "error" in status else status
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(RpcClient(site, MAX_REQUEST_BYTES, limits))
        if running is None and any(client.route(j).is_shared for j in site.me.neighbours):

            async def answer(sender: int, request: Frame) -> Frame:
                return _answer_test(request, digests, site.me.name)

            server = Server(site, answer, own_address or None, client=client)
            await stack.enter_async_context(server)

        async def check_edge(j: int) -> str:
            member = site.roster.members[j]
            if running is not None and not client.route(j).dials:
                is_connected = j in running["connected"]
                return GOOD if is_connected else f"{member.name} has not connected to this site"
            try:
                await client.send_request(j, request.encode())
                return GOOD
            except (Refused, Unreachable, FrameError) as cause:
                return f"{member.address}: {cause}" if member.address else str(cause)

        results = await gather_or_cancel(check_edge(j) for j in site.me.neighbours)
    return {site.roster.members[j].name: r for j, r in zip(site.me.neighbours, results)}


def _answer_test(request: Frame, digests: Mapping[str, str], name: str) -> Frame:
    """Answer the test or the greeting of a neighbour."""
    header, _ = unpack(request, MAX_REQUEST_BYTES)
    match decode_request(header):
        case Ping():
            return Pong().encode()
        case Greeting(parts=parts, within=within):
            if digests and (mismatch := describe_differences(digests, parts)):
                raise RunMismatch(f"{name} runs something else: {mismatch}")
            if within is None:  # no greeting of a run, which is not to begin with a test
                return GreetingAnswer().encode()
    raise FrameError(f"{name} is being tested and does not run")
