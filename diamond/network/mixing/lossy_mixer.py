"""Mixing through channels: sender hooks, links, receiver hooks."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from diamond.core import pytrees
from diamond.core.sampling import Moment
from diamond.network.channels.channel import Ends, Gate
from diamond.network.communication_network import Network
from diamond.network.mixing.link_mixer import LinkMixer, link_mixer
from diamond.network.mixing.mixer import Mixer, mixer, prefers_dense

TOLD, LINKS, HEARD = range(3)  # purposes of a channel's draws


class Kept(NamedTuple):
    """States of the channels between exchanges, one entry per channel."""

    told: tuple[Any, ...]  # per stage: states of the senders
    links: tuple[Any, ...]
    heard: tuple[Any, ...]  # per stage: states of the receivers


@pytrees.pytree
@dataclass(frozen=True)
class LossyMixer:
    """Mixer that applies the channels in order and damps the change by gamma."""

    links: LinkMixer
    channels: tuple[Any, ...]
    gamma: Any
    agents: int = field(metadata={"static": True})

    def start(self, messages: Sequence[Any]) -> Kept:
        """Return the states before round 0; `messages`, as shapes, are those of each stage.

        A message without arrays is not sent and has no state.
        """
        everywhere = lambda a: jnp.zeros((self.agents, *a.shape), a.dtype)
        blank = [jax.tree.map(everywhere, message) for message in messages]
        seen = [self.channels if jax.tree.leaves(message) else () for message in messages]
        for message, channels in zip(messages, seen):
            for channel in channels:
                channel.check(message)
        told, heard = (
            tuple(tuple(jax.vmap(getattr(c, name))(m) for c in cs) for m, cs in zip(blank, seen))
            for name in ("start", "start_heard")
        )
        return Kept(told, tuple(c.start_links(self.agents) for c in self.channels), heard)

    def exchange(self, message: Any, moment: Moment, kept: Kept) -> tuple[Any, Kept]:
        """Return the change in the round of `moment`, and the new states."""
        if not jax.tree.leaves(message):
            return message, kept
        told, links, heard = map(list, kept)
        now, gates = list(told[moment.stage]), []
        spoken = message
        for k, channel in enumerate(self.channels):
            spoken, now[k] = jax.vmap(channel.tell)(now[k], spoken, self._keys(moment, k, TOLD))
            gate, links[k] = channel.gates(links[k], self._drawn(moment, k), self.agents)
            gates += [gate] if gate is not None else []
        told[moment.stage] = tuple(now)
        both = all(channel.senders_know for channel in self.channels)
        weights = self.links.round(moment.t, together(gates), both)
        change, after = weights.change(spoken), list(heard[moment.stage])
        for k, channel in enumerate(self.channels):
            keys = self._keys(moment, k, HEARD)
            change, after[k] = channel.hear(after[k], change, spoken, weights, keys)
        heard[moment.stage] = tuple(after)
        gamma = self.gamma(moment.t) if callable(self.gamma) else self.gamma
        return pytrees.scale(gamma, change), Kept(tuple(told), tuple(links), tuple(heard))

    def gates(self, moment: Moment, kept: Sequence[Any]) -> tuple[list[Ends], tuple[Any, ...]]:
        """Return the effect of the links in this exchange, and their states."""
        found = [
            channel.gates(links, self._drawn(moment, k), self.agents)
            for k, (channel, links) in enumerate(zip(self.channels, kept))
        ]
        return [gate for gate, _ in found if gate is not None], tuple(links for _, links in found)

    def _keys(self, moment: Moment, place: int, purpose: int) -> jax.Array:
        """Return a key for each agent."""
        own = channel_key(moment, place, purpose)
        return jax.vmap(lambda i: jax.random.fold_in(own, i))(jnp.arange(self.agents))

    def _drawn(self, moment: Moment, place: int) -> Callable[..., Any]:
        """Return `draw(make, receivers, senders, one_way)`: `make` applied to each link's key.

        Both directions of an undirected link share a key, unless the draw is `one_way`.
        """
        own = channel_key(moment, place, LINKS)
        both_ways = self.links.totals is None

        def draw(make: Any, receivers: jax.Array, senders: jax.Array, one_way: bool) -> Any:
            a, b = jnp.broadcast_arrays(receivers, senders)
            if both_ways and not one_way:
                a, b = jnp.minimum(a, b), jnp.maximum(a, b)
            of = lambda a, b: make(jax.random.fold_in(jax.random.fold_in(own, a), b))
            return jax.vmap(of)(a.reshape(-1), b.reshape(-1)).reshape(a.shape)

        return draw


def channel_key(moment: Moment, place: int, purpose: int) -> jax.Array:
    """Return the key of channel number `place` for one of its purposes."""
    return moment.purpose(3 * place + purpose)


def together(gates: list[Ends]) -> Ends | None:
    """Compose the effects of several channels on a link."""
    if not gates:
        return None

    def gate(*ends: jax.Array) -> Gate:
        found = [one(*ends) for one in gates]

        def product(name: str) -> jax.Array | None:
            if all(getattr(one, name) is None for one in found):
                return None
            of = lambda one: one.up if getattr(one, name) is None else getattr(one, name)
            return jnp.prod(jnp.stack([of(one) for one in found]), axis=0)

        up = jnp.prod(jnp.stack([one.up for one in found]), axis=0)
        return Gate(up, product("gain"), product("noise"), product("effort"))

    return gate


def mixing(network: Network) -> Mixer | LinkMixer | LossyMixer:
    """Return the mixer of `network`, in the form that is faster for its graph."""
    if network.kind == "symmetric" and not network.channels:
        return mixer(network)
    entries = max(one.weights.nnz for one in network.phases)
    links = link_mixer(network, dense=prefers_dense(network.agents, entries))
    if not network.channels:
        return links
    return LossyMixer(links, network.channels, network.damping, network.agents)
