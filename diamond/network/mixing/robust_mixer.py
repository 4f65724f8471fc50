"""Robust mixing: a receiver combines messages of which some may be false.

For each array of a message, with d_k = ||s_k - s_i|| for the neighbours k of agent i and b liars,

    mean      c_i = sum_k M_ik (s_k - s_i)
    clipped   c_i = sum_k M_ik share_k (s_k - s_i),   tau_i^2 = sum_closest M_ik d_k^2 / delta_i,
              share_k = 1 if d_k <= tau_i, tau_i / d_k up to FAR tau_i, 0 beyond
    trimmed   c_i = the mean without the b largest and the b smallest numbers of the neighbours,
              coordinate by coordinate, scaled to the weight of all neighbours

Clipped is self-centred clipping (He, Karimireddy and Jaggi, 2022) with the paper's radius, in which
the b farthest neighbours do not count and delta_i, the most weight that b liars can have, replaces
the unknown weight of the liars. With equal weights tau_i is at least the distance of every
neighbour that counts, so that at most b messages are shortened. Messages beyond FAR tau_i are not
used at all; the paper's proof needs only share_k d_k <= tau_i of a liar, and (1 - share_k) d_k <=
d_k^2 / tau_i of an honest neighbour. A number by itself (a step size, a measurement) is an array of
its own. A number that is not finite is never used.
"""

from collections.abc import Sequence
from dataclasses import field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy.sparse import csr_array

from diamond.core import host_transfer, pytrees
from diamond.core.sampling import ExchangeId
from diamond.network.communication_network import Network
from diamond.network.liars import LieFunction, lie_functions

from .mixing_interface import Mixing

FAR = 2.0  # radii beyond which a message is not used
STACKED_SIZE = 512  # numbers of an array up to which all differences are one array: measured
UNROLLED = 12  # neighbours up to which ranks are found without loops, which compile in n^2
LIE_PURPOSE = 1 << 16  # purpose of the draws of liars, beyond those of channels
STATIC = {"static": True}


class RobustAggregation(NamedTuple):
    """How a receiver combines messages, and how many liars it expects."""

    kind: str  # "mean", "clipped" or "trimmed"
    liars: int

    def change(self, messages: Sequence[Any], own: Any, weights: jax.Array, most: Any) -> Any:
        """Return the change of the own message of several receivers (first axis of all arrays).

        Args:
            messages: of the neighbours, one after another.
            own: the receivers' own messages.
            weights: (neighbours, receivers); 0 where a receiver has no such neighbour.
            most: per receiver, the most weight that the liars can have.
        """
        own_leaves, structure = jax.tree.flatten(own)
        received = [jax.tree.leaves(message) for message in messages]
        changes: list[Any] = [None] * len(own_leaves)
        numbers: dict[Any, list[int]] = {}
        for i, leaf in enumerate(own_leaves):
            if leaf.ndim == 1:  # one number per receiver: all of them in one array
                numbers.setdefault(leaf.dtype, []).append(i)
            else:
                parts = [leaves[i] for leaves in received]
                changes[i] = self._combine(parts, leaf, weights, most, norms=True)
        for places in numbers.values():
            stack = lambda leaves, places=places: jnp.stack([leaves[i] for i in places], axis=-1)
            parts = [stack(leaves) for leaves in received]
            change = self._combine(parts, stack(own_leaves), weights, most, norms=False)
            for k, i in enumerate(places):
                changes[i] = change[:, k]
        return jax.tree.unflatten(structure, changes)

    def _combine(
        self, parts: list[jax.Array], own: jax.Array, weights: Any, most: Any, norms: bool
    ) -> jax.Array:
        per_part = weights.astype(own.dtype).reshape(*weights.shape, *[1] * (own.ndim - 1))
        if norms and own[0].size <= STACKED_SIZE:  # one array, and one operation for all
            differences: Any = jnp.stack(parts) - own
        else:
            differences = [part - own for part in parts]
        shares: Any = jnp.ones_like(per_part)
        if self.kind == "clipped":
            axes = tuple(range(1, own.ndim)) if norms else ()
            most = most.astype(own.dtype).reshape(per_part.shape[1:])
            shares = self._clip(differences, per_part, most, axes)
        elif self.kind == "trimmed":
            shares = self._trim(parts, per_part)
        total = jnp.zeros_like(own)
        for difference, weight, share in zip(differences, per_part, shares, strict=True):
            change = weight * share * difference
            total = total + (change if self.kind == "mean" else jnp.where(share > 0, change, 0))
        return total

    def _clip(self, differences: Any, weights: jax.Array, most: jax.Array, axes: Any) -> jax.Array:
        """Return the share of every difference."""
        if isinstance(differences, list):
            sums = [jnp.sum(jnp.square(d), axis=axes, keepdims=True) for d in differences]
            squares = jnp.stack(sums)
        else:
            axes = tuple(axis + 1 for axis in axes)
            squares = jnp.sum(jnp.square(differences), axis=axes, keepdims=True)
        squares = jnp.where(jnp.isfinite(squares), squares, jnp.inf)
        ranks, count = _ranks(squares, weights)
        total = jnp.zeros_like(most)
        for square, weight, rank in zip(squares, weights, ranks):
            total = total + jnp.where(rank < count - self.liars, weight * square, 0)
        radius = total / most  # squared
        shorter = jnp.sqrt(radius / jnp.where(squares > 0, squares, 1))
        shorter = jnp.where(squares <= FAR**2 * radius, shorter, 0)
        return jnp.where(squares <= radius, 1, shorter)

    def _trim(self, parts: list[jax.Array], weights: jax.Array) -> list[jax.Array]:
        """Return the share of every number: 0 for extreme ones, equal for the others."""
        ranks, count = _ranks([jnp.where(jnp.isnan(p), jnp.inf, p) for p in parts], weights)
        is_used = [(rank >= self.liars) & (rank < count - self.liars) for rank in ranks]
        used = [jnp.where(inside, weight, 0) for inside, weight in zip(is_used, weights)]
        factor = weights.sum(0) / sum(used)
        return [jnp.where(weight > 0, factor, 0) for weight in used]


def _ranks(values: Any, weights: jax.Array) -> tuple[Any, Any]:
    """Return the rank of every value along the first axis, and their number.

    Values of weight 0 are not counted.
    """
    if len(values) <= UNROLLED:
        return _unrolled_ranks(values, weights)
    values, numbers, is_present = jnp.stack(list(values)), np.arange(len(values)), weights != 0
    is_earlier = (numbers[:, None] < numbers).reshape(len(values), -1, *[1] * (values.ndim - 1))
    is_before = (values[:, None] < values) | ((values[:, None] == values) & is_earlier)
    return (is_before & is_present[:, None]).sum(0), is_present.sum(0)


def _unrolled_ranks(values: Any, weights: jax.Array) -> tuple[list[Any], Any]:
    """Return the same as `_ranks`, by operations on single values, which compile into one loop."""
    is_present = [weight != 0 for weight in weights]
    ranks: list[Any] = []
    for k, value in enumerate(values):
        is_before = [
            (other <= value if j < k else other < value) & is_present[j]
            for j, other in enumerate(values)
            if j != k
        ]
        ranks.append(sum((before.astype(jnp.int32) for before in is_before), jnp.int32(0)))
    return ranks, sum(present.astype(jnp.int32) for present in is_present)


@pytrees.pytree
class RobustMixer(Mixing):
    """Mixer of a network with robust mixing, with liars, or with both.

    `senders` and `weights` are (slots, agents): the neighbours of each agent in order; a free slot
    names the agent itself, weight 0. `most` is the most weight that the liars can have. `liars` are
    the liars' numbers, each with the index of its lie in `lies`: all lies share a compilation.
    """

    senders: jax.Array
    weights: jax.Array
    most: jax.Array
    liars: tuple[tuple[jax.Array, jax.Array], ...]
    aggregation: RobustAggregation = field(metadata=STATIC)
    lies: tuple[LieFunction, ...] = field(default=(), metadata=STATIC)

    def exchange(self, message: Any, exchange_id: ExchangeId, state: Any) -> tuple[Any, Any]:
        """Return the change in this exchange, and no state."""
        if not jax.tree.leaves(message):
            return message, state
        lies = [(liar[0], self._falsify(*liar, message, exchange_id)) for liar in self.liars]

        def receive(senders: jax.Array) -> Any:
            """Return what every agent gets from one of its neighbours."""
            pick = lambda a: a.at[senders].get(mode="promise_in_bounds")
            messages = jax.tree.map(pick, message)
            for agent, false in lies:
                choose = lambda a, b, agent=agent: jnp.where(
                    (senders == agent).reshape(-1, *[1] * (a.ndim - 1)), b, a
                )
                messages = jax.tree.map(choose, messages, false)
            return messages

        messages = [receive(senders) for senders in self.senders]
        return self.aggregation.change(messages, message, self.weights, self.most), state

    def _falsify(self, agent: Any, kind: Any, message: Any, exchange_id: ExchangeId) -> Any:
        """Return the false message of a liar for every receiver."""
        key, true = lie_key(exchange_id, agent), jax.tree.map(lambda a: a[agent], message)
        cast = lambda false: jax.tree.map(lambda b, a: jnp.asarray(b, a.dtype), false, true)
        branches = [lambda receiver, lie=lie: cast(lie(true, receiver, key)) for lie in self.lies]
        receivers = jnp.arange(self.senders.shape[1])
        return jax.vmap(lambda receiver: jax.lax.switch(kind, branches, receiver))(receivers)


def lie_key(exchange_id: ExchangeId, agent: Any) -> jax.Array:
    """Return the key of the random lies of an agent in an exchange."""
    return jax.random.fold_in(exchange_id.purpose(LIE_PURPOSE), agent)


def most_weight_of_liars(weights: csr_array, agent: int, liars: int) -> float:
    """Return the sum of the `liars` largest weights of an agent's neighbours."""
    span = slice(weights.indptr[agent], weights.indptr[agent + 1])
    others = weights.data[span][weights.indices[span] != agent]
    return float(np.sort(others)[::-1][:liars].sum())


class RobustReceiver(NamedTuple):
    """Robust mixing of one agent, which has only its own messages and those it receives."""

    aggregation: RobustAggregation
    most: float  # weight that the liars can have among its neighbours

    def change(self, messages: Sequence[Any], weights: jax.Array, own_index: int) -> Any:
        """Return the change of the own message, with the bits of `RobustMixer`."""
        add_axis = lambda tree: jax.tree.map(lambda a: a[None], tree)
        others = [add_axis(m) for j, m in enumerate(messages) if j != own_index]
        columns = jnp.stack([w for j, w in enumerate(weights) if j != own_index])[:, None]
        most = jnp.full(1, self.most, weights.dtype)
        change = self.aggregation.change(others, add_axis(messages[own_index]), columns, most)
        return jax.tree.map(lambda a: a[0], change)


def robust_receiver(network: Network, agent: int) -> RobustReceiver | None:
    """Return the robust mixing of one agent of the network, if it has any."""
    if network.defense is None:
        return None
    aggregation = RobustAggregation(*network.defense)
    most = most_weight_of_liars(network.weights, agent, aggregation.liars)
    return RobustReceiver(aggregation, most)


def robust_mixer(network: Network) -> RobustMixer:
    """Return the mixer of a network with robust mixing or liars."""
    m, agents = network.weights, network.agents
    aggregation = RobustAggregation(*(network.defense or ("mean", 0)))
    neighbours = [m.indices[m.indptr[i] : m.indptr[i + 1]] for i in range(agents)]
    width = max(1, max(map(len, neighbours)) - 1)
    senders = np.tile(np.arange(agents), (width, 1))
    weights = np.zeros((width, agents))
    for i, row in enumerate(neighbours):
        others = row[row != i]
        senders[: len(others), i] = others
        weights[: len(others), i] = m.data[m.indptr[i] : m.indptr[i + 1]][row != i]
    most = np.array([most_weight_of_liars(m, i, max(aggregation.liars, 1)) for i in range(agents)])
    to_device = host_transfer.to_device
    lies = lie_functions(network.lies)
    as_index = lambda number: to_device(number, np.int32)
    liars = tuple(
        (as_index(liar.agent), as_index(lies.index(liar.function))) for liar in network.lies
    )
    return RobustMixer(
        to_device(senders, np.int32), to_device(weights), to_device(most), liars, aggregation, lies
    )
