"""Exact mean of all agents, summed along a spanning tree in a fixed order of additions.

    total_i = (...((s_i + total_j) + total_k)...)   children j < k < ... of agent i
    mean    = total_root / m

Every agent gets these bits, however many devices or sites compute them.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from diamond.core import host_transfer, pytrees
from diamond.network.communication_network import Network


@pytrees.pytree
class MeanTree:
    """The additions of a mean; `edges` is (m - 1, 2): child and parent of each addition."""

    edges: jax.Array
    root: jax.Array
    agents: jax.Array  # m, which no compiler knows: it leaves the loop and the division as they are

    def __call__(self, tree: Any) -> Any:
        """Return the mean over the leading axis of every leaf, the agents, for each of them."""
        rows = jax.tree.map(lambda leaf: jnp.broadcast_to(self.mean(leaf), leaf.shape), tree)
        # XLA would divide by one number for all agents in other bits than each agent by its own.
        return jax.lax.optimization_barrier(rows)

    def mean(self, leaf: jax.Array) -> jax.Array:
        """Return the mean of an array over its leading axis, of which the first m rows count.

        The loop reads rounded numbers, as sites do that have received them: a product outside of it
        is not fused with a sum inside.
        """

        def add(k: Any, totals: jax.Array) -> jax.Array:
            child, parent = self.edges[k]
            row = totals[parent] + totals[child]
            return jax.lax.dynamic_update_index_in_dim(totals, row, parent, 0)

        if not len(self.edges):
            return leaf[0]
        total = jax.lax.fori_loop(0, self.agents - 1, add, leaf)[self.root]
        # XLA would replace a division by one number by a product, unless it sees an array.
        counts = jnp.full(total.shape, self.agents.astype(total.dtype))
        return total / jax.lax.optimization_barrier(counts)


def mean_tree(network: Network) -> MeanTree:
    """Return the additions of the exact mean over all agents of the network."""
    tree, to_index = network.spanning_tree, lambda a: host_transfer.to_device(a, np.int32)
    edges = np.array(tree.up, np.int32).reshape(-1, 2)
    return MeanTree(to_index(edges), to_index(tree.root), to_index(network.agents))


class MeanPlace(NamedTuple):
    """Place of one agent in the tree, with the bits of `MeanTree` from arrays that it receives."""

    parent: int | None  # None: the root
    children: tuple[int, ...]  # in the order of additions
    agents: int

    def add(
        self, own: Sequence[np.ndarray], received: Sequence[Sequence[np.ndarray]]
    ) -> list[np.ndarray]:
        """Return the total of the own message and those of the children; the root divides by m."""
        totals = list(own)
        for message in received:
            totals = [np.asarray(a + b) for a, b in zip(totals, message, strict=True)]
        if self.parent is None and self.agents > 1:
            totals = [np.asarray(total / total.dtype.type(self.agents)) for total in totals]
        return totals


def mean_place(network: Network, members: Sequence[int], agent: int) -> MeanPlace:
    """Return the place of one of the members in the tree of a network with undirected links."""
    edges = [(members[child], members[parent]) for child, parent in network.spanning_tree.up]
    parent = next((parent for child, parent in edges if child == agent), None)
    children = tuple(child for child, parent in edges if parent == agent)
    return MeanPlace(parent, children, network.agents)
