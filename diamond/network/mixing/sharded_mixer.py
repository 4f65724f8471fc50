"""Mixing with agents sharded over several devices: only messages travel between devices."""

from dataclasses import field, replace
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec
from numpy.typing import NDArray
from scipy.sparse import csr_array

from diamond.core import pytrees
from diamond.core.sampling import ExchangeId
from diamond.hardware.sharding import AgentSharding
from diamond.network.communication_network import Network

from .exact_mean import MeanTree, mean_tree
from .mixer import PASS, Bucket
from .mixing_interface import Mixing

AXIS = "agents"
Transport = Literal["gather", "permute"]
Pairs = tuple[tuple[int, int], ...]  # (sender, receiver), each part at most once on either side


@pytrees.pytree
class ShardedMixer(Mixing):
    """The mixing matrix, for use inside `jax.shard_map` over the axis "agents".

        mixer(s)_i = sum_j M_ij (s_j - s_i)

    Every device builds a table of the messages its agents hear and sums them in the order of the
    neighbours, so any number of devices gives the same bits. The table is either all messages
    ("gather": one all_gather), or the device's own followed by those received ("permute": one
    ppermute per color, in which each device sends to at most one other).
    """

    bucket: Bucket  # of all places; `senders` index the rows of the table
    sends: tuple[jax.Array, ...]  # per color: (parts, rows), indices of sent rows
    mean_tree: MeanTree
    pairs: tuple[Pairs, ...] = field(metadata={"static": True})

    @property
    def specs(self) -> Any:
        """Partition specs of the arrays."""
        slots, rows = PartitionSpec(None, AXIS), PartitionSpec(AXIS)
        bucket = jax.tree.map(lambda _: slots, self.bucket)
        sends = jax.tree.map(lambda _: rows, self.sends)
        tree = jax.tree.map(lambda _: PartitionSpec(), self.mean_tree)
        return replace(self, bucket=bucket, sends=sends, mean_tree=tree)

    def __call__(self, tree: Any) -> Any:
        """Return the change of every leaf over its leading axis: this device's agents."""
        return jax.tree.map(lambda leaf: self.bucket(self.table(leaf), leaf), tree)

    def exchange(self, message: Any, exchange_id: ExchangeId, state: Any) -> tuple[Any, Any]:
        """Return the change, equal in every round, and no state."""
        return self(message), state

    def mean(self, tree: Any) -> Any:
        """Return the exact mean of all agents, for each of this device's agents."""

        def mean_of_leaf(leaf: jax.Array) -> jax.Array:
            everyone = jax.lax.all_gather(leaf, AXIS, tiled=True)
            return jnp.broadcast_to(self.mean_tree.mean(everyone), leaf.shape)

        return jax.tree.map(mean_of_leaf, tree)

    def table(self, leaf: jax.Array) -> jax.Array:
        """Return all messages that this device's agents may hear."""
        if not self.pairs:
            return jax.lax.all_gather(leaf, AXIS, tiled=True)
        received = [
            jax.lax.ppermute(leaf[rows[0]], AXIS, pairs)
            for rows, pairs in zip(self.sends, self.pairs, strict=True)
        ]
        return jnp.concatenate([leaf, *received])


@pytrees.pytree
class ShardedLinkMixer(Mixing):
    """Sharded mixer over one-way or changing links, like `link_mixer`.

    The table has every agent that is ever heard; in other rounds its weight is 0.
    """

    links: ShardedMixer
    averages: jax.Array  # (rounds, slots, places)
    totals: jax.Array
    surplus: jax.Array  # (rounds, places): total received minus total given

    @property
    def specs(self) -> Any:
        """Partition specs of the arrays."""
        slots, places = PartitionSpec(None, None, AXIS), PartitionSpec(None, AXIS)
        return ShardedLinkMixer(self.links.specs, slots, slots, places)  # type: ignore[arg-type]

    def exchange(self, message: Any, exchange_id: ExchangeId, state: Any) -> tuple[Any, Any]:
        """Return the change in the round of `exchange_id`, and no state."""
        t = exchange_id.t % len(self.averages)
        mix = lambda weights, a: Bucket(self.links.bucket.senders, weights)(self.links.table(a), a)

        def mix_total(a: jax.Array) -> jax.Array:
            surplus = self.surplus[t].astype(a.dtype).reshape(-1, *[1] * (a.ndim - 1))
            return mix(self.totals[t], a) + surplus * a

        average = jax.tree.map(lambda a: mix(self.averages[t], a), message.average)
        return type(message)(average, jax.tree.map(mix_total, message.total)), state

    def mean(self, tree: Any) -> Any:
        """Return the exact mean of all agents, for each of this device's agents."""
        return self.links.mean(tree)


def sharded_mixer(
    network: Network, sharding: AgentSharding, transport: Transport | None = None
) -> ShardedMixer | ShardedLinkMixer:
    """Return the mixer of `network` over the devices; `transport` None: the cheaper one."""
    mixer = _symmetric_mixer(network, sharding, transport)
    if network.kind == "symmetric":
        return mixer
    senders = _senders(network, sharding)
    stack_weights = lambda m: jnp.asarray(
        np.stack([_entries_at_slots(a, senders, sharding) for a in m])
    )
    rows = [phase.weights for phase in network.phases]
    shares = [phase.weights if phase.shares is None else phase.shares for phase in network.phases]
    surplus = np.stack([np.asarray(c.sum(axis=1)).ravel() - 1 for c in shares])
    at_places = jnp.asarray(surplus[:, sharding.agent_at_place])
    return ShardedLinkMixer(mixer, stack_weights(rows), stack_weights(shares), at_places)


def _symmetric_mixer(
    network: Network, sharding: AgentSharding, transport: Transport | None
) -> ShardedMixer:
    agents_to_send = _agents_to_send(network, sharding)
    colors = _color_pairs(agents_to_send)
    travel = sum(max(len(agents_to_send[pair]) for pair in pairs) for pairs in colors)
    if transport is None:
        gathered = (sharding.devices - 1) * sharding.places_per_device
        transport = "permute" if colors and travel < gathered / 2 else "gather"
    if transport == "gather" or not colors:
        return ShardedMixer(_slots(network, sharding, {}), (), mean_tree(network), ())
    table: dict[tuple[int, int], int] = {}  # (part, agent) -> row
    sends, row = [], sharding.places_per_device
    for pairs in colors:
        most = max(len(agents_to_send[pair]) for pair in pairs)
        rows = np.zeros((sharding.devices, most), np.int32)
        for sender, receiver in pairs:
            agents = agents_to_send[sender, receiver]
            rows[sender, : len(agents)] = [a - sender * sharding.places_per_device for a in agents]
            table |= {(receiver, agent): row + i for i, agent in enumerate(agents)}
        sends.append(jnp.asarray(rows))
        row += most
    bucket = _slots(network, sharding, table)
    return ShardedMixer(bucket, tuple(sends), mean_tree(network), tuple(colors))


def _agents_to_send(network: Network, sharding: AgentSharding) -> dict[tuple[int, int], list[int]]:
    """Return, for each pair of devices (sender, receiver), the agents that are sent."""
    m = network.weights
    agents_by_pair: dict[tuple[int, int], set[int]] = {}
    for place, agent in enumerate(sharding.agent_at_place):
        receiver = place // sharding.places_per_device
        for j in m.indices[m.indptr[agent] : m.indptr[agent + 1]]:
            sender = int(j) // sharding.places_per_device
            if sender != receiver:
                agents_by_pair.setdefault((sender, receiver), set()).add(int(j))
    return {pair: sorted(agents) for pair, agents in agents_by_pair.items()}


def _color_pairs(agents_to_send: dict[tuple[int, int], list[int]]) -> list[Pairs]:
    """Group the pairs so that no device sends or receives twice; largest first."""
    groups: list[list[tuple[int, int]]] = []
    for sender, receiver in sorted(
        agents_to_send, key=lambda pair: (-len(agents_to_send[pair]), pair)
    ):
        free = (g for g in groups if all(sender != a and receiver != b for a, b in g))
        group = next(free, None)
        if group is None:
            groups.append(group := [])
        group.append((sender, receiver))
    return [tuple(group) for group in groups]


def _slots(network: Network, sharding: AgentSharding, table: dict[tuple[int, int], int]) -> Bucket:
    """Return the agents that each place hears, as rows of its device's table."""
    m, places = network.weights, sharding.agent_at_place
    width = _width(network)
    senders = np.tile(
        np.arange(len(places)) % (sharding.places_per_device if table else len(places)), (width, 1)
    )
    weights = np.zeros((width, len(places)))
    for place, agent in enumerate(places):
        part = place // sharding.places_per_device
        for slot, k in enumerate(range(m.indptr[agent], m.indptr[agent + 1])):
            j = int(m.indices[k])
            local_row = j - part * sharding.places_per_device if table else j
            senders[slot, place], weights[slot, place] = table.get((part, j), local_row), m.data[k]
    return Bucket(jnp.asarray(senders, jnp.int32), jnp.asarray(weights))


def _width(network: Network) -> int:
    width = int(np.diff(network.weights.indptr).max())
    return width + (-width % PASS if width > PASS else 0)


def _senders(network: Network, sharding: AgentSharding) -> NDArray[np.int64]:
    """Return the agent of each slot of `_slots`; the agent itself for a free slot."""
    m = network.weights
    senders = np.tile(sharding.agent_at_place, (_width(network), 1))
    for place, agent in enumerate(sharding.agent_at_place):
        neighbours = m.indices[m.indptr[agent] : m.indptr[agent + 1]]
        senders[: len(neighbours), place] = neighbours
    return senders


def _entries_at_slots(
    m: csr_array, senders: NDArray[np.int64], sharding: AgentSharding
) -> NDArray[np.float64]:
    """Return the entry of m for each slot, 0 for the agent's own."""
    entries = np.zeros(senders.shape)
    for place, agent in enumerate(sharding.agent_at_place):
        row = np.zeros(m.shape[0])
        span = slice(m.indptr[agent], m.indptr[agent + 1])
        row[m.indices[span]] = m.data[span]
        row[agent] = 0.0
        entries[:, place] = row[senders[:, place]]
    return entries
