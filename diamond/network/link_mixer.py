"""Mixing over links that go one way or change from round to round.

averages   c_i = sum_j R_ij (s_j - s_i)              rows of R sum to 1
totals     c_i = sum_j C_ij s_j - (sum_j C_ji) s_i   what one gives away, another gets
"""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy.sparse import csr_array

from diamond.core.sampling import Moment
from diamond.network.mixer import PASS, Bucket, Mixer, mixer, prefers_dense
from diamond.network.network import Network


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Links:
    """The weights of all links of every agent, round after round, without its own.

    `weights` is (rounds, slots, agents); in `others`, as large, is who is at the other end, the
    agent itself with weight 0 where a slot is free. None: slot j is agent j, for many links.
    """

    others: jax.Array | None
    weights: jax.Array

    def at(self, t: Any) -> "Links":
        """Those of round t."""
        return jax.tree.map(lambda a: a[t % len(a)], self)

    def spread(self, leaf: jax.Array) -> jax.Array:
        """sum_j w_ij (s_j - s_i), of one round."""
        if self.others is not None:
            return Bucket(self.others, self.weights)(leaf, leaf)
        off, weights = leaf - leaf[:1], self.weights.astype(leaf.dtype)
        highest = jax.lax.Precision.HIGHEST  # not TF32, which would not keep a total
        found = jnp.tensordot(weights, off, axes=((0,), (0,)), precision=highest)
        return found - _by_agent(weights.sum(0), off)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class LinkMixer:
    """The change of averages by R and of totals by C; a total given away is `given`, C^T.

    Without `totals`, the weights are symmetric and serve for both.
    """

    averages: Links
    totals: Links | None
    given: Links | None

    def __call__(self, message: Any, t: Any = 0) -> Any:
        """The change that every agent's message undergoes in round t."""
        rows = self.averages.at(t)
        if self.totals is None or self.given is None:
            return jax.tree.map(rows.spread, message)
        columns = self.totals.at(t)
        surplus = columns.weights.sum(0) - self.given.at(t).weights.sum(0)
        keep = lambda a: columns.spread(a) + _by_agent(surplus.astype(a.dtype), a)
        average = jax.tree.map(rows.spread, message.average)
        return type(message)(average, jax.tree.map(keep, message.total))

    def exchange(self, message: Any, moment: Moment, kept: Any) -> tuple[Any, Any]:
        """The same in the round of `moment`; nothing is kept for the next."""
        return self(message, moment.t), kept


def _by_agent(numbers: jax.Array, leaf: jax.Array) -> jax.Array:
    """A number of each agent times its row."""
    return numbers.reshape(-1, *[1] * (leaf.ndim - 1)) * leaf


def mixing(network: Network) -> Mixer | LinkMixer:
    """How `network` mixes, in the form that is faster for its graph."""
    if network.kind == "symmetric":
        return mixer(network)
    entries = max(one.weights.nnz for one in network.rounds)
    return link_mixer(network, dense=prefers_dense(network.agents, entries))


def link_mixer(network: Network, dense: bool) -> LinkMixer:
    """The general form, also of a symmetric network."""
    form = _dense if dense else _slots
    rows = form([one.weights for one in network.rounds])
    if network.shares is None:
        return LinkMixer(rows, None, None)
    shares = [one.weights if one.shares is None else one.shares for one in network.rounds]
    return LinkMixer(rows, form(shares), form([csr_array(c.T) for c in shares]))


def _dense(matrices: list[csr_array]) -> Links:
    found = np.stack([m.toarray().T for m in matrices])
    found[:, np.arange(found.shape[1]), np.arange(found.shape[1])] = 0.0
    return Links(None, jnp.asarray(found))


def _slots(matrices: list[csr_array]) -> Links:
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
    return Links(jnp.asarray(others, jnp.int32), jnp.asarray(weights))
