"""Sites of a federation in one process, over real sockets."""

import asyncio
import contextlib
import socket

import pytest
from crash_cluster import EVERY, ROUNDS, team

import diamond
from diamond.sites.identity import certificate_authority, private_keys, roster
from diamond.sites.rounds.node import Node
from diamond.sites.transport.errors import Refused, Unreachable
from diamond.sites.transport.messages import MessageRequest
from diamond.sites.transport.rpc import RpcClient
from diamond.sites.transport.server import Server
from diamond.sites.transport.timeouts import Timeouts
from diamond.sites.transport.wire_format import max_frame_bytes

NETWORK = diamond.network.path(3)
SHORT_TIMEOUTS = Timeouts(connect=1.0, round=5.0, give_up=60.0)


def largest_layout():
    """The largest message of these sites."""
    return team()[0].largest_layout


def ports(count):
    """Ports that were free a moment ago."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for listener in sockets:
            listener.bind(("127.0.0.1", 0))
        return [listener.getsockname()[1] for listener in sockets]


def federation(folder, name="trial"):
    sites = {f"site{i}": f"127.0.0.1:{port}" for i, port in enumerate(ports(3))}
    bundles = certificate_authority.create_federation(folder, name, sites, NETWORK)
    return [roster.load_bundle(place) for place in bundles.values()]


@contextlib.asynccontextmanager
async def running_site(bundle, folder=None, timeouts=SHORT_TIMEOUTS):
    """The node of one site, reachable."""
    agent = team()[bundle.me.number]
    async with RpcClient(bundle, max_frame_bytes(agent.largest_layout), timeouts) as client:
        node = Node(agent, ROUNDS, client, folder, EVERY, timeouts)
        async with Server(bundle, node.answer_request):
            yield node


def refusal(target, client, request=None, max_bytes=None):
    """What happens to a call of `client`, a bundle, to the site of the bundle `target`."""

    async def attempt():
        async with running_site(target) as node:
            default = MessageRequest(node.run_digest, client.me.number, 0, 0)
            async with RpcClient(
                client, max_bytes or max_frame_bytes(largest_layout()), SHORT_TIMEOUTS
            ) as caller:
                await caller.send_request(target.me.number, request or default.encode())

    with pytest.raises((Refused, Unreachable)) as error:
        asyncio.run(attempt())
    return error.type, str(error.value)


def with_changes(bundle, **changes):
    """The bundle with other files."""
    return roster.Bundle(**{**vars(bundle), **changes})


def with_certificate(folder, bundle, key=None, days=365):
    """The bundle with a new certificate of its authority, for `key` if given."""
    secret = key or roster_key(bundle)
    signer = private_keys.load_signing_key((folder / "ca.key").read_bytes())
    name = roster.certificate_name(private_keys.fingerprint(secret.public_key()))
    certificate = certificate_authority._certificate(
        name, secret, signer, bundle.roster.federation, days=days
    )
    pem = private_keys.Encoding.PEM
    private = secret.private_bytes(
        pem, private_keys.PrivateFormat.PKCS8, private_keys.NoEncryption()
    )
    return with_changes(bundle, certificate=certificate.public_bytes(pem), key=private)


def roster_key(bundle):
    return private_keys.load_signing_key(bundle.key)
