"""Mixing over links that are one-way, change from round to round, or lose messages.

averages   c_i = sum_j R_ij (s_j - s_i)              rows of R sum to 1
totals     c_i = sum_j C_ij s_j - (sum_j C_ji) s_i   given and received totals balance
"""

from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy.sparse import csr_array

from diamond.core import pytrees
from diamond.core.sampling import ExchangeId
from diamond.network.channels.channel import Gate, GateFunction
from diamond.network.communication_network import Network
from diamond.network.mixing.exact_mean import MeanTree, mean_tree
from diamond.network.mixing.mixer import PASS, Bucket

from .mixing_interface import Mixing


@pytrees.pytree
class LinkWeights:
    """Weights of all links of every agent for each round, without its own weight.

    `weights` is (rounds, slots, agents); `others`, of the same shape, names the agent at the other
    end, or the agent itself with weight 0 for a free slot. None: slot j is agent j, for dense
    networks.
    """

    others: jax.Array | None
    weights: jax.Array

    def at_round(self, t: Any) -> "LinkWeights":
        """Return the links of round t."""
        return jax.tree.map(lambda a: a[t % len(a)], self)

    @property
    def ends(self) -> tuple[jax.Array, jax.Array]:
        """Return the agent of each slot and the agent at its other end, for one round."""
        agents = jnp.arange(self.weights.shape[-1])[None]
        return agents, agents.T if self.others is None else self.others

    def mix(self, leaf: jax.Array) -> jax.Array:
        """Return sum_j w_ij (s_j - s_i) of one round."""
        if self.others is not None:
            return Bucket(self.others, self.weights)(leaf, leaf)
        off, weights = leaf - leaf[:1], self.weights.astype(leaf.dtype)
        highest = jax.lax.Precision.HIGHEST  # TF32 would not preserve a total
        total = jnp.tensordot(weights, off, axes=((0,), (0,)), precision=highest)
        return total - _scale_by_agent(weights.sum(0), off)


class LinkSum(NamedTuple):
    """The map sum_j w_ij (s_j - s_i) + surplus_i s_i of one round."""

    links: LinkWeights
    surplus: jax.Array | None = None

    def __call__(self, leaf: jax.Array) -> jax.Array:
        total = self.links.mix(leaf)
        if self.surplus is None:
            return total
        return total + _scale_by_agent(self.surplus.astype(leaf.dtype), leaf)


@pytrees.pytree
class LinkMixer(Mixing):
    """Mixer that changes averages by R and totals by C; `sent_totals` is C^T.

    Without `totals`, the weights are symmetric and serve for both. `skips` (rounds, agents) says
    which agents skip which rounds, if any does.
    """

    averages: LinkWeights
    totals: LinkWeights | None
    sent_totals: LinkWeights | None
    mean: MeanTree  # exact mean over all agents
    skips: jax.Array | None = None

    def __call__(self, message: Any, t: Any = 0) -> Any:
        """Return the change of every agent's message in round t."""
        return self.weights_at(t).change(message)

    def exchange(self, message: Any, exchange_id: ExchangeId, state: Any) -> tuple[Any, Any]:
        """Return the change in the round of `exchange_id`, and no state."""
        return self(message, exchange_id.t), state

    def weights_at(
        self, t: Any, gate: GateFunction | None = None, senders_know: bool = True
    ) -> "RoundWeights":
        """Return the weights of round t after the links have lost messages."""
        rows = self.averages.at_round(t)
        average_gate = None if gate is None else gate(*rows.ends)
        average = _apply_gate(rows, average_gate)
        if self.totals is None or self.sent_totals is None:
            return RoundWeights(average, average, rows, rows, average_gate)
        columns, sent = self.totals.at_round(t), self.sent_totals.at_round(t)
        total_gate = None if gate is None else gate(*columns.ends)
        total = _apply_gate(columns, total_gate).links
        arrivals = gate(*sent.ends[::-1]).up if gate is not None and senders_know else 1.0
        surplus = total.weights.sum(0) - (sent.weights * arrivals).sum(0)
        return RoundWeights(average, LinkSum(total, surplus), rows, columns, average_gate)


class RoundWeights(NamedTuple):
    """Mixing weights of one round."""

    average: LinkSum
    total: LinkSum
    rows: LinkWeights
    columns: LinkWeights
    gate: Gate | None

    def change(self, message: Any) -> Any:
        """Return the change of every agent's message."""
        average = jax.tree.map(lambda a: self.average(a), message.average)
        return type(message)(average, jax.tree.map(lambda a: self.total(a), message.total))

    def noise_levels(self, powers: Any, loudest: bool) -> Any:
        """Return the noise level at each agent (`channels.channel.ReceivedWeights`)."""
        average = jax.tree.map(lambda p: self._noise_level(self.rows, p, loudest), powers.average)
        total = jax.tree.map(lambda p: self._noise_level(self.columns, p, loudest), powers.total)
        return type(powers)(average, total)

    def _noise_level(self, links: LinkWeights, power: jax.Array, loudest: bool) -> jax.Array:
        _, others = links.ends
        weights = links.weights
        if self.gate is not None:
            up, _, noise, effort = self.gate
            factor = effort if loudest else noise
            weights = weights * (up if factor is None else factor)
        squares = jnp.square(weights) * power[others]
        return jnp.sqrt(squares.max(0) if loudest else squares.sum(0))


def _apply_gate(links: LinkWeights, gate: Gate | None) -> LinkSum:
    """Return the map sum_j w_ij (gain_ij s_j - up_ij s_i)."""
    if gate is None:
        return LinkSum(links)
    through = links.weights * (gate.up if gate.gain is None else gate.gain)
    surplus = None if gate.gain is None else (through - links.weights * gate.up).sum(0)
    return LinkSum(replace(links, weights=through), surplus)


def _scale_by_agent(numbers: jax.Array, leaf: jax.Array) -> jax.Array:
    """Multiply each agent's row by the agent's number."""
    return numbers.reshape(-1, *[1] * (leaf.ndim - 1)) * leaf


def link_mixer(network: Network, dense: bool) -> LinkMixer:
    """Return the general mixer, also for a symmetric network."""
    form = _dense if dense else _slots
    rows = form([phase.weights for phase in network.phases])
    if network.shares is None:
        return LinkMixer(rows, None, None, mean_tree(network), _skips(network))
    shares = [phase.weights if phase.shares is None else phase.shares for phase in network.phases]
    sent = form([csr_array(c.T) for c in shares])
    return LinkMixer(rows, form(shares), sent, mean_tree(network))


def _skips(network: Network) -> jax.Array | None:
    """Return which agents skip which rounds; None if nobody does."""
    if not any(phase.skipping for phase in network.phases):
        return None
    agents = range(network.agents)
    return jnp.asarray([[i in phase.skipping for i in agents] for phase in network.phases])


def _dense(matrices: list[csr_array]) -> LinkWeights:
    weights = np.stack([m.toarray().T for m in matrices])
    weights[:, np.arange(weights.shape[1]), np.arange(weights.shape[1])] = 0.0
    return LinkWeights(None, jnp.asarray(weights))


def _slots(matrices: list[csr_array]) -> LinkWeights:
    m = matrices[0].shape[0]
    width = max(1, max(int(np.diff(a.indptr).max()) for a in matrices))
    width += -width % PASS if width > PASS else 0
    others = np.broadcast_to(np.arange(m), (len(matrices), width, m)).copy()
    weights = np.zeros((len(matrices), width, m))
    for t, a in enumerate(matrices):
        rows = np.repeat(np.arange(m), np.diff(a.indptr))
        slots = np.arange(a.nnz) - a.indptr[rows]
        others[t, slots, rows] = a.indices
        weights[t, slots, rows] = np.where(a.indices == rows, 0.0, a.data)
    return LinkWeights(jnp.asarray(others, jnp.int32), jnp.asarray(weights))
