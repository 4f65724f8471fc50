"""Sites in one process of which some accept no connections, and a relay without keys."""

import contextlib

from crash_cluster import EVERY, ROUNDS, team
from tls_sites import NETWORK, SHORT_TIMEOUTS, largest_layout, ports

from diamond.sites.identity import certificate_authority, roster
from diamond.sites.identity.credentials import as_credentials
from diamond.sites.rounds.node import Node
from diamond.sites.transport.audit import Audit
from diamond.sites.transport.relay import RelayLimits, RelayServer
from diamond.sites.transport.rpc import RpcClient
from diamond.sites.transport.server import Server
from diamond.sites.transport.wire_format import max_frame_bytes


def found(folder, listening, relays=None, network=NETWORK):
    """Bundles of sites, of which those with a number in `listening` have an address."""
    places = {
        f"site{i}": f"127.0.0.1:{port}" if i in listening else ""
        for i, port in enumerate(ports(network.agents))
    }
    relays = {name: places.get(name) or address for name, address in (relays or {}).items()}
    bundles = certificate_authority.create_federation(
        folder, "trial", places, network, relays=relays
    )
    return [roster.load_bundle(place) for place in bundles.values()]


@contextlib.asynccontextmanager
async def site(bundle, folder=None, timeouts=SHORT_TIMEOUTS):
    """The node of one site that listens where the roster says, or nowhere."""
    credentials = as_credentials(bundle)
    agent = team()[credentials.bundle.me.number]
    async with RpcClient(credentials, max_frame_bytes(largest_layout()), timeouts) as client:
        node = Node(agent, ROUNDS, client, folder, EVERY, timeouts)
        async with Server(credentials, node.answer_request, client=client) as server:
            node.server, node.rpc = server, client
            yield node


@contextlib.asynccontextmanager
async def relay(folder, limits=RelayLimits(), lines=None):
    audit = Audit((lines if lines is not None else []).append)
    async with RelayServer(folder, None, limits, audit) as server:
        yield server
