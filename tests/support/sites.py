"""Sites of a federation in one process, over real sockets."""

import asyncio
import contextlib
import socket

import pytest
from crashing import EVERY, ROUNDS, team

import diamond
from diamond.peers import certificate_authority, roster
from diamond.peers.call_errors import Refused, Unreachable
from diamond.peers.node import Node
from diamond.peers.rpc import RpcClient
from diamond.peers.server import Server
from diamond.peers.timeouts import Timeouts
from diamond.peers.wire_format import MessageRequest, encode_request, limit

NETWORK = diamond.network.path(3)
SOON = Timeouts(connect=1.0, round=5.0, give_up=60.0)


def layout():
    """The largest message of these sites."""
    return team()[0].largest


def ports(count):
    """Ports that were free a moment ago."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


def federation(folder, name="trial"):
    sites = {f"site{i}": f"127.0.0.1:{port}" for i, port in enumerate(ports(3))}
    made = certificate_authority.create_federation(folder, name, sites, NETWORK)
    return [roster.load(place) for place in made.values()]


@contextlib.asynccontextmanager
async def site(bundle, folder=None, limits=SOON):
    """The node of one site, reachable."""
    agent = team()[bundle.me.number]
    async with RpcClient(bundle, limit(agent.largest), limits) as client:
        node = Node(agent, ROUNDS, client, folder, EVERY, limits)
        async with Server(bundle, node.answer):
            yield node


def refusal(asked, client, request=None, most=None):
    """What happens to a call of `client`, a bundle, to the site of the bundle `asked`."""

    async def attempt():
        async with site(asked) as node:
            ask = MessageRequest(node.run_digest, client.me.number, 0, 0)
            async with RpcClient(client, most or limit(layout()), SOON) as caller:
                await caller.call(asked.me.number, request or encode_request(ask))

    with pytest.raises((Refused, Unreachable)) as said:
        asyncio.run(attempt())
    return said.type, str(said.value)


def altered(bundle, **changes):
    """The bundle with other files."""
    return roster.Bundle(**{**vars(bundle), **changes})


def certified(folder, bundle, key=None, days=365):
    """The bundle with a new certificate of its authority, for `key` if given."""
    secret = key or roster_key(bundle)
    signer = certificate_authority.load_pem_private_key((folder / "ca.key").read_bytes(), None)
    name = roster.host(roster.fingerprint(secret.public_key()))
    made = certificate_authority._certificate(name, secret, signer, bundle.roster.federation, days)
    pem = certificate_authority.Encoding.PEM
    private = secret.private_bytes(
        pem, certificate_authority.PrivateFormat.PKCS8, certificate_authority.NoEncryption()
    )
    return altered(bundle, certificate=made.public_bytes(pem), key=private)


def roster_key(bundle):
    return certificate_authority.load_pem_private_key(bundle.key, None)
