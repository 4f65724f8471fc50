"""Count of lost messages on the links of a run, drawn again by the same keys."""

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from diamond.core.sampling import Moment, key
from diamond.network.communication_network import Network
from diamond.network.mixing.lossy_mixer import LossyMixer, mixing, together


class MessageCounts(NamedTuple):
    """Messages of an edge, both directions together."""

    sent: int  # messages
    lost: int  # messages that were lost


def count_lost_messages(
    network: Network, seed: int, rounds: int, turns: Sequence[int | None]
) -> dict[tuple[int, int], MessageCounts]:
    """Count lost messages per edge in the first `rounds` rounds; {} if no channel loses any.

    `turns` are the exchanges of a round that send something. The effect of a channel on a link is a
    function of (seed, round, turn, link), so this repeats the losses of the run.
    """
    if not any(channel.breaks_links for channel in network.channels):
        return {}
    mixer = mixing(network)
    assert isinstance(mixer, LossyMixer)
    edges = np.array(network.edges, np.int32).reshape(-1, 2)
    arcs = edges if network.graph.is_directed() else np.concatenate([edges, edges[:, ::-1]])
    there = np.array([[one.weights[j, i] != 0 for i, j in arcs] for one in network.phases])
    lost = _count(mixer, key(seed), rounds, *arcs.T, there, tuple(turns))
    per_edge = np.asarray(lost).reshape(-1, len(edges)).sum(0)
    sent = network.uses(rounds)
    return {
        edge: MessageCounts(sent[edge] * len(turns), int(count))
        for edge, count in zip(network.edges, per_edge)
    }


@partial(jax.jit, static_argnums=6)
def _count(
    mixer: LossyMixer,
    run: jax.Array,
    rounds: int,
    senders: Any,
    receivers: Any,
    there: jax.Array,
    turns: tuple[int | None, ...],
) -> jax.Array:
    """Return the number of lost messages of each arc."""

    def play(t: Any, before: Any) -> Any:
        links, lost = before
        for turn in turns:
            gates, after = mixer.gates(Moment(run, t, turn), links)
            up = together(gates)(receivers, senders).up  # type: ignore[misc]
            links, lost = after, lost + ((up == 0) & there[t % len(there)])
        return links, lost

    kept = tuple(channel.start_links(mixer.agents) for channel in mixer.channels)
    return jax.lax.fori_loop(0, rounds, play, (kept, jnp.zeros(len(senders), jnp.int32)))[1]
