"""Links that take time between sites in one process, over real sockets and mutual TLS."""

import asyncio
import contextlib
from dataclasses import replace

import jax.numpy as jnp
import numpy as np
from lockstep_agents import agents
from proxy import Proxy
from tls_sites import ports

import diamond
from diamond.network.links.link_clock import PACKET
from diamond.sites.identity import certificate_authority, roster
from diamond.sites.rounds.node import Node
from diamond.sites.transport.rpc import RpcClient
from diamond.sites.transport.server import Server
from diamond.sites.transport.timeouts import Timeouts
from diamond.sites.transport.wire_format import max_frame_bytes

SIZE = 2_000  # numbers in x; a message has twice as many, less than the window of HTTP/2
NETWORK = diamond.network.path(3)
LONG_TIMEOUTS = Timeouts(connect=10.0, round=30.0, give_up=60.0)
ALGORITHM = diamond.gt_sgd(
    alpha=0.05, beta=0.2, batch=4, hypergradient=diamond.hypergradient.neumann(2, lipschitz=1.6)
)


class ShapedLink:
    """One way of a connection: packets leave one by one at `rate` and arrive `latency` later.

    One that is lost is sent again `timeout` seconds after it was sent; those behind it wait. The
    two connections of a link do not wait for one another, as with fair queues.
    """

    def __init__(self, rate, latency=0.0, loss=0.0, timeout=0.0, seed=0):
        self.rate, self.latency, self.loss, self.timeout = rate, latency, loss, timeout
        self.random, self.free, self.carried = np.random.default_rng(seed), 0.0, 0

    def arrival(self, size):
        """When a packet of so many bytes arrives that is there to be sent now."""
        late, self.carried = 0.0, self.carried + size
        self.free = max(_now(), self.free) + 8 * size / self.rate
        while self.random.random() < self.loss:
            self.free += 8 * size / self.rate
            late += self.timeout
        return self.free + self.latency + late

    async def carry(self, reader, writer):
        """All that a connection carries in this direction."""
        packets = asyncio.Queue()
        delivering = asyncio.ensure_future(self._deliver(packets, writer))
        try:
            while chunk := await reader.read(2**16):
                for start in range(0, len(chunk), PACKET):
                    packet = chunk[start : start + PACKET]
                    packets.put_nowait((self.arrival(len(packet)), packet))
        finally:
            packets.put_nowait((0.0, b""))
            await delivering

    async def _deliver(self, packets, writer):
        while True:
            arrival_time, packet = await packets.get()
            if not packet:
                return writer.close()
            await asyncio.sleep(arrival_time - _now())
            writer.write(packet)


def problem():
    """Small losses of a large x, with rows for every agent."""

    def f(x, y, rows):
        return jnp.mean((y - rows) ** 2) + 0.1 * jnp.mean(x**2)

    def g(x, y, rows):
        return jnp.mean(0.5 * (y - rows) ** 2 * (1 + 0.1 * jnp.tanh(x[:3]))) + 0.1 * y @ x[-3:]

    rows = [np.random.default_rng(i).normal(i, 1, (8, 3)) for i in range(NETWORK.agents)]
    start = lambda key: (jnp.linspace(-1.0, 1.0, SIZE), jnp.zeros(3))
    return diamond.Problem(f, g, start, rows, [part[::-1].copy() for part in rows])


def team():
    """The agents of all sites."""
    return agents(problem(), NETWORK, ALGORITHM)


async def run_sites(folder, team, rounds, **link):
    """Seconds from when all sites have met until all have made their rounds, and the links.

    links[i, j] carry what i asks of j, and what j answers.
    """
    bundles, start_times, end_times = _found_federation(folder), [], []
    edges = [(i, j) for i, bundle in enumerate(bundles) for j in bundle.me.neighbours]  # i asks j
    links = {
        edge: [ShapedLink(**link, seed=10 * k + direction) for direction in (0, 1)]
        for k, edge in enumerate(edges)
    }
    fronts = dict(zip(edges, ports(len(edges))))

    def record_time(progress):
        if progress.t in (0, rounds):
            (end_times if progress.t else start_times).append(loop.time())

    loop = asyncio.get_running_loop()
    async with contextlib.AsyncExitStack() as stack:
        nodes = []
        for i, j in edges:
            proxy = Proxy(_port(bundles[j]), links[i, j])
            await proxy.start(fronts[i, j])
            stack.push_async_callback(proxy.close)
        for i, bundle in enumerate(bundles):
            bundle_via_proxies = _with_addresses(
                bundle, {j: fronts[i, j] for j in bundle.me.neighbours}
            )
            client = await stack.enter_async_context(
                RpcClient(
                    bundle_via_proxies, max_frame_bytes(team[i].largest_layout), LONG_TIMEOUTS
                )
            )
            nodes.append(
                Node(team[i], rounds, client, timeouts=LONG_TIMEOUTS, on_round=record_time)
            )
            await stack.enter_async_context(Server(bundle, nodes[-1].answer_request))
        await asyncio.gather(*(node.run() for node in nodes))
    return max(end_times) - max(start_times), links


def _found_federation(folder):
    places = {f"site{i}": f"127.0.0.1:{port}" for i, port in enumerate(ports(NETWORK.agents))}
    bundles = certificate_authority.create_federation(folder, "shaped", places, NETWORK)
    return [roster.load_bundle(place) for place in bundles.values()]


def _with_addresses(bundle, fronts):
    """The bundle with other places of the neighbours."""
    members = tuple(
        replace(m, address=f"127.0.0.1:{fronts[m.number]}") if m.number in fronts else m
        for m in bundle.roster.members
    )
    return replace(bundle, roster=replace(bundle.roster, members=members))


def _port(bundle):
    return int(bundle.me.address.rpartition(":")[2])


def _now():
    return asyncio.get_running_loop().time()
