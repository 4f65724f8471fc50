"""Count of lost messages on the links of a run, drawn again by the same keys."""

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from diamond.core.sampling import ExchangeId, key
from diamond.network.communication_network import Network
from diamond.network.mixing.lossy_mixer import LossyMixer, compose_gates, make_mixer


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
    mixer = make_mixer(network)
    assert isinstance(mixer, LossyMixer)
    edges = np.array(network.edges, np.int32).reshape(-1, 2)
    arcs = edges if network.graph.is_directed() else np.concatenate([edges, edges[:, ::-1]])
    active = np.array([[phase.weights[j, i] != 0 for i, j in arcs] for phase in network.phases])
    lost = _count_per_arc(mixer, key(seed), rounds, *arcs.T, active, tuple(turns))
    per_edge = np.asarray(lost).reshape(-1, len(edges)).sum(0)
    sent = network.count_messages_by_edge(rounds)
    return {
        edge: MessageCounts(sent[edge] * len(turns), int(count))
        for edge, count in zip(network.edges, per_edge)
    }


@partial(jax.jit, static_argnums=6)
def _count_per_arc(
    mixer: LossyMixer,
    run: jax.Array,
    rounds: int,
    senders: Any,
    receivers: Any,
    active: jax.Array,
    turns: tuple[int | None, ...],
) -> jax.Array:
    """Return the number of lost messages of each arc."""

    def count_round(t: Any, carry: Any) -> Any:
        links, lost = carry
        for turn in turns:
            gates, new_links = mixer.gates(ExchangeId(run, t, turn), links)
            up = compose_gates(gates)(receivers, senders).up  # type: ignore[misc]
            links, lost = new_links, lost + ((up == 0) & active[t % len(active)])
        return links, lost

    start = tuple(channel.start_links(mixer.agents) for channel in mixer.channels)
    return jax.lax.fori_loop(0, rounds, count_round, (start, jnp.zeros(len(senders), jnp.int32)))[1]
