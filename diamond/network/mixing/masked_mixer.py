"""Masked sums: a receiver gets the weighted sum of its neighbours' messages, in fixed point.

Sites add masks that cancel in the sum (`diamond.sites.trust.message_masks`). They cancel exactly,
so that a simulation needs none and has the bits of the sites.
"""

from collections.abc import Sequence
from dataclasses import field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from diamond.core import host_transfer, pytrees
from diamond.core.sampling import ExchangeId
from diamond.network.communication_network import Network
from diamond.network.mixing import fixed_point
from diamond.network.mixing.fixed_point import Pair, Words

from .mixing_interface import Mixing

CHECKED = 256  # numbers of an array by which masks that do not cancel are found


@pytrees.pytree
class MaskedMixer(Mixing):
    """Mixer of a network with masked sums.

    `senders` and `weights` are (slots, agents): the neighbours of each agent in order; a free slot
    names the agent itself, weight 0.
    """

    senders: jax.Array
    weights: jax.Array
    limit: float = field(metadata={"static": True})

    def exchange(self, message: Any, exchange_id: ExchangeId, state: Any) -> tuple[Any, Any]:
        """Return the change, equal in every round, and no state."""
        return jax.tree.map(self._mix, message), state

    def _mix(self, leaf: jax.Array) -> jax.Array:
        leaf = jnp.asarray(leaf)
        pair, is_over = fixed_point.to_pair(leaf, self.limit)

        def add_neighbour(total: Any, slot: Any) -> tuple[Any, None]:
            (change, is_invalid), (senders, weights) = total, slot
            weights = weights.reshape(-1, *[1] * (leaf.ndim - 1))
            pick = lambda a: a.at[senders].get(mode="promise_in_bounds")
            received = fixed_point.multiply_pair(jax.tree.map(pick, pair), weights)
            own = fixed_point.negate(fixed_point.multiply_pair(pair, weights))
            change = fixed_point.add(change, fixed_point.add(received, own))
            return (change, is_invalid | (pick(is_over) & (weights > 0))), None

        start = jax.tree.map(jnp.zeros_like, pair), is_over
        (change, is_invalid), _ = jax.lax.scan(add_neighbour, start, (self.senders, self.weights))
        value = fixed_point.from_pair(Pair(*change), self.limit, leaf.dtype)
        return jnp.where(is_invalid, jnp.nan, value)


def masked_mixer(network: Network) -> MaskedMixer:
    """Return the mixer of a network with masked sums."""
    assert network.mask_limit is not None
    m, agents = network.weights, network.agents
    width = int(np.diff(m.indptr).max()) - 1
    senders = np.tile(np.arange(agents), (width, 1))
    weights = np.zeros((width, agents), np.uint64)
    for i in range(agents):
        receiver = masked_receiver(network, range(agents), i)
        count = len(receiver.neighbours)
        senders[:count, i], weights[:count, i] = receiver.neighbours, receiver.weights
    return MaskedMixer(
        host_transfer.to_device(senders, np.int32),
        host_transfer.to_device(weights, np.uint32),
        network.mask_limit,
    )


class FixedPointMessage:
    """Own message of an agent as integers, all arrays one after another, and its products."""

    def __init__(self, arrays: Sequence[np.ndarray], limit: float):
        leaves = [fixed_point.to_words(array.reshape(-1), limit) for array in arrays]
        self.words: Words = np.concatenate(leaves)
        self._products: dict[np.uint64, Words] = {}

    def product(self, weight: np.uint64) -> Words:
        """Return the weighted message, computed once for each weight; do not modify it."""
        if weight not in self._products:
            self._products[weight] = fixed_point.multiply(self.words, weight)
        return self._products[weight]


class MaskedReceiver(NamedTuple):
    """Masked sums of one agent, which has only its own messages and sums of those it receives."""

    neighbours: tuple[int, ...]
    weights: tuple[np.uint64, ...]
    limit: float

    def change(
        self, own: FixedPointMessage, received: Sequence[Sequence[Words]], dtypes: Sequence[Any]
    ) -> list[np.ndarray]:
        """Return the change of the own message, with the bits of `MaskedMixer`.

        Raises:
            LimitExceeded: the sum is larger than any sum of messages, so masks did not cancel.
        """
        counts = {weight: self.weights.count(weight) for weight in self.weights}
        changes, start = [], 0
        for k, dtype in enumerate(dtypes):
            total = received[0][k] + received[1][k]
            for message in received[2:]:
                total += message[k]
            self._check(total)
            span = slice(start, start := start + total.size)
            for weight, count in counts.items():  # equal weights have equal products
                part = own.product(weight)[span].reshape(total.shape)
                total -= part if count == 1 else part * np.uint64(count)
            changes.append(fixed_point.from_words(total, self.limit, dtype))
        return changes

    def _check(self, total: Words) -> None:
        """Raise if a sum cannot be one of weighted messages; a random number passes in 1 of 4."""
        signed, count = total.reshape(-1)[:CHECKED].view(np.int64), len(self.weights)
        largest = 2**fixed_point.SUM_BITS + count * 2**29  # rounded weights sum to more than 1
        if total.size and not -largest <= signed.min() <= signed.max() <= largest:
            raise fixed_point.LimitExceeded(
                "the sum of its neighbours' messages is beyond the limit: their masks did not "
                "cancel, since one of them has other keys; start all sites with --restart"
            )


def masked_receiver(network: Network, members: Sequence[int], agent: int) -> MaskedReceiver:
    """Return the masked sums of one of the members of the network."""
    assert network.mask_limit is not None
    m, place = network.weights, members.index(agent)
    span = slice(m.indptr[place], m.indptr[place + 1])
    is_other = m.indices[span] != place
    neighbours = tuple(members[j] for j in m.indices[span][is_other].tolist())
    weights = tuple(fixed_point.integer_weight(m.data[span][is_other]))
    return MaskedReceiver(neighbours, weights, network.mask_limit)
