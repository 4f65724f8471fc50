"""Mixing inside a compiled program: sum_j M_ij (leaf[j] - leaf[i]) for every leaf."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from diamond.core import host_transfer, pytrees
from diamond.core.sampling import ExchangeId
from diamond.network.communication_network import Network
from diamond.network.mixing.exact_mean import MeanTree, mean_tree

from .mixing_interface import Mixing

# Slots summed in one fused pass; wider buckets loop over passes. A compromise: timed on a CPU,
# no length from 8 to 64 was best throughout, and longer passes take longer to compile.
PASS = 16


def prefers_dense(agents: int, entries: int) -> bool:
    """Return whether a dense M is the faster form; `entries` counts the diagonal.

    A compromise, timed on a CPU. With 16,000 numbers per agent the sparse form was never slower,
    and several times faster from 32 agents on. With 123 it won on rings from 16 agents (0.19 of the
    entries filled), lost on random graphs of 64 (0.13) and took twice as long at 32 (0.25). At 5
    and 9 agents the two differ by 0.15 ms at most.
    """
    return agents < 16 or 5 * entries > agents**2


@pytrees.pytree
class Bucket:
    """Agents with similar numbers of neighbours: the neighbours and weights, slot by slot.

    Both arrays are (width, agents in the bucket); a free slot names the agent itself, weight 0.
    """

    senders: jax.Array
    weights: jax.Array

    def __call__(self, leaf: jax.Array, own_rows: jax.Array) -> jax.Array:
        """Return the change of the bucket's agents, which have `own_rows`, in neighbour order."""
        width, members = self.senders.shape
        weights = self.weights.astype(leaf.dtype).reshape((width, members) + (1,) * (leaf.ndim - 1))

        def add(total: jax.Array, slots: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, None]:
            for sender, weight in zip(*slots, strict=True):
                neighbour_rows = leaf.at[sender].get(mode="promise_in_bounds")
                total = total + weight * (neighbour_rows - own_rows)
            return total, None

        total = jnp.zeros((members, *leaf.shape[1:]), leaf.dtype)
        if width <= PASS:
            return add(total, (self.senders, weights))[0]
        passes = jax.tree.map(
            lambda slots: slots.reshape(-1, PASS, *slots.shape[1:]), (self.senders, weights)
        )
        return jax.lax.scan(add, total, passes)[0]


@pytrees.pytree
class Mixer(Mixing):
    """The mixing matrix as a pytree of arrays, for use in compiled functions.

        mixer(s)_i = sum_j M_ij (s_j - s_i)

    is the change that makes s_i the average of what i hears. Differences cancel what all agents
    have in common before rounding, so float32 does not drift. Either `matrix` is M, or `buckets`
    hold its rows, `members` says whose rows they are and `places` where each agent's row is in
    their concatenation (None: in order). Networks of equal shapes share a compilation.
    """

    matrix: jax.Array | None
    buckets: tuple[Bucket, ...]
    members: tuple[jax.Array, ...] | None
    places: jax.Array | None
    mean: MeanTree  # exact mean over all agents

    def __call__(self, tree: Any) -> Any:
        """Return the change of every leaf over its leading axis, the agents, in its precision."""
        return jax.tree_util.tree_map_with_path(self._mix, tree)

    def exchange(self, message: Any, exchange_id: ExchangeId, state: Any) -> tuple[Any, Any]:
        """Return the change, equal in every round, and no state."""
        return self(message), state

    @property
    def agents(self) -> int:
        """Number of agents, m."""
        if self.matrix is not None:
            return self.matrix.shape[0]
        return sum(bucket.senders.shape[1] for bucket in self.buckets)

    def _mix(self, path: tuple[Any, ...], leaf: jax.Array) -> jax.Array:
        leaf = jnp.asarray(leaf)
        if leaf.shape[:1] != (self.agents,):
            raise ValueError(
                f"leaf{jax.tree_util.keystr(path)} has shape {leaf.shape}; "
                f"its first axis must be the {self.agents} agents"
            )
        if not jnp.issubdtype(leaf.dtype, jnp.inexact):
            raise TypeError(
                f"leaf{jax.tree_util.keystr(path)} is of type {leaf.dtype}, which has no "
                "averages; convert it to a float first"
            )
        if self.matrix is not None and self.agents <= PASS:
            return self._sum_in_order(leaf)
        if self.matrix is not None:
            # A GPU would otherwise round to TF32, and the agents' average would drift.
            highest = jax.lax.Precision.HIGHEST
            offsets, matrix = leaf - leaf[:1], self.matrix.astype(leaf.dtype)
            return jnp.tensordot(matrix, offsets, axes=1, precision=highest) - offsets
        if self.members is None or self.places is None:
            return self.buckets[0](leaf, leaf)
        rows = [bucket(leaf, leaf[members]) for bucket, members in zip(self.buckets, self.members)]
        return jnp.concatenate(rows)[self.places]

    def _sum_in_order(self, leaf: jax.Array) -> jax.Array:
        """Sum agent by agent in the order of peers: as fast as a product for few agents."""
        assert self.matrix is not None
        total, shape = jnp.zeros_like(leaf), (-1, *[1] * (leaf.ndim - 1))
        for sender, weights in zip(leaf, self.matrix.T.astype(leaf.dtype), strict=True):
            total += weights.reshape(shape) * (sender[None] - leaf)
        return total


def mixer(network: Network) -> Mixer:
    """Return the mixing matrix of `network`, in the form that is faster for its graph.

    The sparse form gathers: its cost grows with the edges, even if few agents have many neighbours,
    and unlike a scatter-add it gives the same bits on every run.
    """
    dense = prefers_dense(network.agents, network.weights.nnz)
    return dense_mixer(network) if dense else sparse_mixer(network)


def dense_mixer(network: Network) -> Mixer:
    """Return M as a matrix; a round costs m^2 products per number."""
    return Mixer(host_transfer.to_device(network.matrix), (), None, None, mean_tree(network))


def sparse_mixer(network: Network) -> Mixer:
    """Return M as buckets of agents whose numbers of entries lie between powers of two."""
    entries = np.diff(network.weights.indptr)
    sizes = np.ceil(np.log2(entries)).astype(np.int64)
    groups = [np.flatnonzero(sizes == size) for size in np.unique(sizes)]
    buckets = tuple(_bucket(network, members) for members in groups)
    if len(groups) == 1:
        return Mixer(None, buckets, None, None, mean_tree(network))
    as_indices = lambda a: host_transfer.to_device(a, np.int32)
    places = as_indices(np.argsort(np.concatenate(groups)))
    return Mixer(None, buckets, tuple(map(as_indices, groups)), places, mean_tree(network))


def _bucket(network: Network, members: NDArray[np.int64]) -> Bucket:
    m = network.weights
    entries = np.diff(m.indptr)[members]
    width = int(entries.max())
    if width > PASS:
        width += -width % PASS
    slots = np.arange(width)[:, None]
    used = slots < entries
    position = np.where(used, m.indptr[members] + slots, 0)
    senders = np.where(used, m.indices[position], members)
    weights = np.where(used, m.data[position], 0.0)
    return Bucket(host_transfer.to_device(senders, np.int32), host_transfer.to_device(weights))
