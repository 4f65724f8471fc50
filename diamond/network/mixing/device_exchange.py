"""Mixing with agents sharded over several devices: only messages travel between devices."""

from dataclasses import dataclass, field, replace
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec
from numpy.typing import NDArray
from scipy.sparse import csr_array

from diamond.core import pytrees
from diamond.core.sampling import Moment
from diamond.hardware.sharding import AgentSharding
from diamond.network.communication_network import Network

from .mixer import PASS, Bucket

AXIS = "agents"
Way = Literal["gather", "permute"]
Pairs = tuple[tuple[int, int], ...]  # (sender, receiver), each part at most once on either side


@pytrees.pytree
@dataclass(frozen=True)
class Exchange:
    """The mixing matrix, for use inside `jax.shard_map` over the axis "agents".

        exchange(s)_i = sum_j M_ij (s_j - s_i)

    Every device builds a table of the messages its agents hear and sums them in the order of the
    neighbours, so any number of devices gives the same bits. The table is either all messages
    ("gather": one all_gather), or the device's own followed by those received ("permute": one
    ppermute per color, in which each device sends to at most one other).
    """

    bucket: Bucket  # of all places; `senders` index the rows of the table
    sends: tuple[jax.Array, ...]  # per color: (parts, rows), indices of sent rows
    pairs: tuple[Pairs, ...] = field(metadata={"static": True})

    @property
    def specs(self) -> Any:
        """Partition specs of the arrays."""
        slots, rows = PartitionSpec(None, AXIS), PartitionSpec(AXIS)
        bucket = jax.tree.map(lambda _: slots, self.bucket)
        return replace(self, bucket=bucket, sends=jax.tree.map(lambda _: rows, self.sends))

    def __call__(self, tree: Any) -> Any:
        """Return the change of every leaf over its leading axis: this device's agents."""
        return jax.tree.map(lambda leaf: self.bucket(self.table(leaf), leaf), tree)

    def exchange(self, message: Any, moment: Moment, kept: Any) -> tuple[Any, Any]:
        """Return the change, equal in every round, and no state."""
        return self(message), kept

    def table(self, leaf: jax.Array) -> jax.Array:
        """Return all messages that this device's agents may hear."""
        if not self.pairs:
            return jax.lax.all_gather(leaf, AXIS, tiled=True)
        heard = [
            jax.lax.ppermute(leaf[rows[0]], AXIS, pairs)
            for rows, pairs in zip(self.sends, self.pairs, strict=True)
        ]
        return jnp.concatenate([leaf, *heard])


@pytrees.pytree
@dataclass(frozen=True)
class LinkExchange:
    """Exchange over one-way or changing links, like `link_mixer`.

    The table has every agent that is ever heard; in other rounds its weight is 0.
    """

    links: Exchange
    averages: jax.Array  # (rounds, slots, places)
    totals: jax.Array
    surplus: jax.Array  # (rounds, places): total received minus total given

    @property
    def specs(self) -> Any:
        """Partition specs of the arrays."""
        slots, places = PartitionSpec(None, None, AXIS), PartitionSpec(None, AXIS)
        return LinkExchange(self.links.specs, slots, slots, places)  # type: ignore[arg-type]

    def exchange(self, message: Any, moment: Moment, kept: Any) -> tuple[Any, Any]:
        """Return the change in the round of `moment`, and no state."""
        t = moment.t % len(self.averages)
        heard = lambda weights, a: Bucket(self.links.bucket.senders, weights)(
            self.links.table(a), a
        )

        def keep(a: jax.Array) -> jax.Array:
            surplus = self.surplus[t].astype(a.dtype).reshape(-1, *[1] * (a.ndim - 1))
            return heard(self.totals[t], a) + surplus * a

        average = jax.tree.map(lambda a: heard(self.averages[t], a), message.average)
        return type(message)(average, jax.tree.map(keep, message.total)), kept


def exchange(
    network: Network, cut: AgentSharding, way: Way | None = None
) -> Exchange | LinkExchange:
    """Make the exchange of `network` over the devices of `cut`; `way` None: the cheaper one."""
    found = _exchange(network, cut, way)
    if network.kind == "symmetric":
        return found
    senders = _senders(network, cut)
    of = lambda m: jnp.asarray(np.stack([_picked(a, senders, cut) for a in m]))
    rows = [one.weights for one in network.phases]
    shares = [one.weights if one.shares is None else one.shares for one in network.phases]
    surplus = [np.asarray(c.sum(axis=1)).ravel() - 1 for c in shares]
    return LinkExchange(found, of(rows), of(shares), jnp.asarray(np.stack(surplus)[:, cut.places]))


def _exchange(network: Network, cut: AgentSharding, way: Way | None) -> Exchange:
    needed = _needed(network, cut)
    colours = _coloured(needed)
    travel = sum(max(len(needed[pair]) for pair in pairs) for pairs in colours)
    if way is None:
        way = "permute" if colours and travel < (cut.parts - 1) * cut.each / 2 else "gather"
    if way == "gather" or not colours:
        return Exchange(_slots(network, cut, {}), (), ())
    table: dict[tuple[int, int], int] = {}  # (part, agent) -> row
    sends, row = [], cut.each
    for pairs in colours:
        most = max(len(needed[pair]) for pair in pairs)
        rows = np.zeros((cut.parts, most), np.int32)
        for sender, receiver in pairs:
            agents = needed[sender, receiver]
            rows[sender, : len(agents)] = [a - sender * cut.each for a in agents]
            table |= {(receiver, agent): row + i for i, agent in enumerate(agents)}
        sends.append(jnp.asarray(rows))
        row += most
    return Exchange(_slots(network, cut, table), tuple(sends), tuple(colours))


def _needed(network: Network, cut: AgentSharding) -> dict[tuple[int, int], list[int]]:
    """Return, for each pair of devices (sender, receiver), the agents that are sent."""
    m = network.weights
    found: dict[tuple[int, int], set[int]] = {}
    for place, agent in enumerate(cut.places):
        receiver = place // cut.each
        for j in m.indices[m.indptr[agent] : m.indptr[agent + 1]]:
            sender = int(j) // cut.each
            if sender != receiver:
                found.setdefault((sender, receiver), set()).add(int(j))
    return {pair: sorted(agents) for pair, agents in found.items()}


def _coloured(needed: dict[tuple[int, int], list[int]]) -> list[Pairs]:
    """Group the pairs so that no device sends or receives twice; largest first."""
    groups: list[list[tuple[int, int]]] = []
    for sender, receiver in sorted(needed, key=lambda pair: (-len(needed[pair]), pair)):
        free = (g for g in groups if all(sender != a and receiver != b for a, b in g))
        group = next(free, None)
        if group is None:
            groups.append(group := [])
        group.append((sender, receiver))
    return [tuple(group) for group in groups]


def _slots(network: Network, cut: AgentSharding, table: dict[tuple[int, int], int]) -> Bucket:
    """Return the agents that each place hears, as rows of its device's table."""
    m, places = network.weights, cut.places
    width = _width(network)
    senders = np.tile(np.arange(len(places)) % (cut.each if table else len(places)), (width, 1))
    weights = np.zeros((width, len(places)))
    for place, agent in enumerate(places):
        part = place // cut.each
        for slot, k in enumerate(range(m.indptr[agent], m.indptr[agent + 1])):
            j = int(m.indices[k])
            own = j - part * cut.each if table else j
            senders[slot, place], weights[slot, place] = table.get((part, j), own), m.data[k]
    return Bucket(jnp.asarray(senders, jnp.int32), jnp.asarray(weights))


def _width(network: Network) -> int:
    width = int(np.diff(network.weights.indptr).max())
    return width + (-width % PASS if width > PASS else 0)


def _senders(network: Network, cut: AgentSharding) -> NDArray[np.int64]:
    """Return the agent of each slot of `_slots`; the agent itself for a free slot."""
    m = network.weights
    found = np.tile(cut.places, (_width(network), 1))
    for place, agent in enumerate(cut.places):
        heard = m.indices[m.indptr[agent] : m.indptr[agent + 1]]
        found[: len(heard), place] = heard
    return found


def _picked(m: csr_array, senders: NDArray[np.int64], cut: AgentSharding) -> NDArray[np.float64]:
    """Return the entry of m for each slot, 0 for the agent's own."""
    found = np.zeros(senders.shape)
    for place, agent in enumerate(cut.places):
        row = np.zeros(m.shape[0])
        own = slice(m.indptr[agent], m.indptr[agent + 1])
        row[m.indices[own]] = m.data[own]
        row[agent] = 0.0
        found[:, place] = row[senders[:, place]]
    return found
