"""Mixing where the agents are cut over several devices: only the messages travel between them."""

from dataclasses import dataclass, field, replace
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec

from ..core import tree
from ..machine.sharding import AgentSharding
from .mixer import PASS, Bucket
from .network import Network

AXIS = "agents"
Way = Literal["gather", "permute"]
Pairs = tuple[tuple[int, int], ...]  # (sender, receiver), each part at most once on either side


@tree.pytree
@dataclass(frozen=True)
class Exchange:
    """The mixing matrix, for use inside `jax.shard_map` over the axis "agents".

        exchange(s)_i = sum_j M_ij (s_j - s_i)

    Every device makes a table of the messages its agents hear and sums them in the order of the
    neighbours, whatever the cut: the same bits on any number of devices. The table is either all
    messages ("gather": one all_gather), or the device's own followed by those that others sent it
    ("permute": one ppermute a colour, in which each device sends to one other at most).
    """

    bucket: Bucket  # of all places; `senders` number the rows of the table
    sends: tuple[jax.Array, ...]  # for each colour: (parts, rows), which of its own a device sends
    pairs: tuple[Pairs, ...] = field(metadata={"static": True})

    @property
    def specs(self) -> Any:
        """How its arrays are cut over the devices."""
        slots, rows = PartitionSpec(None, AXIS), PartitionSpec(AXIS)
        bucket = jax.tree.map(lambda _: slots, self.bucket)
        return replace(self, bucket=bucket, sends=jax.tree.map(lambda _: rows, self.sends))

    def __call__(self, tree: Any) -> Any:
        """The change of every leaf over its leading axis: this device's agents."""
        return jax.tree.map(lambda leaf: self.bucket(self._table(leaf), leaf), tree)

    def _table(self, leaf: jax.Array) -> jax.Array:
        if not self.pairs:
            return jax.lax.all_gather(leaf, AXIS, tiled=True)
        heard = [
            jax.lax.ppermute(leaf[rows[0]], AXIS, pairs)
            for rows, pairs in zip(self.sends, self.pairs, strict=True)
        ]
        return jnp.concatenate([leaf, *heard])


def exchange(network: Network, cut: AgentSharding, way: Way | None = None) -> Exchange:
    """The exchange of `network` over the devices of `cut`; `way` None takes the cheaper one."""
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
    """For each pair of devices (sender, receiver), the agents of one whom the other hears."""
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
    """The pairs in groups in which nobody sends or hears twice, those with most to say first."""
    groups: list[list[tuple[int, int]]] = []
    for sender, receiver in sorted(needed, key=lambda pair: (-len(needed[pair]), pair)):
        free = (g for g in groups if all(sender != a and receiver != b for a, b in g))
        group = next(free, None)
        if group is None:
            groups.append(group := [])
        group.append((sender, receiver))
    return [tuple(group) for group in groups]


def _slots(network: Network, cut: AgentSharding, table: dict[tuple[int, int], int]) -> Bucket:
    """Whom the agent of each place hears, as rows of its device's table."""
    m, places = network.weights, cut.places
    width = int(np.diff(m.indptr).max())
    width += -width % PASS if width > PASS else 0
    senders = np.tile(np.arange(len(places)) % (cut.each if table else len(places)), (width, 1))
    weights = np.zeros((width, len(places)))
    for place, agent in enumerate(places):
        part = place // cut.each
        for slot, k in enumerate(range(m.indptr[agent], m.indptr[agent + 1])):
            j = int(m.indices[k])
            own = j - part * cut.each if table else j
            senders[slot, place], weights[slot, place] = table.get((part, j), own), m.data[k]
    return Bucket(jnp.asarray(senders, jnp.int32), jnp.asarray(weights))
