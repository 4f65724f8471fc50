"""Mixing through channels: sender hooks, links, receiver hooks."""

from collections.abc import Callable, Sequence
from dataclasses import field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from diamond.core import pytrees
from diamond.core.exclusions import check_combination
from diamond.core.sampling import ExchangeId
from diamond.network.channels.channel import Gate, GateFunction
from diamond.network.communication_network import Network
from diamond.network.mixing.link_mixer import LinkMixer, link_mixer
from diamond.network.mixing.masked_mixer import MaskedMixer, masked_mixer
from diamond.network.mixing.mixer import Mixer, mixer, prefers_dense
from diamond.network.mixing.robust_mixer import RobustMixer, robust_mixer

from .mixing_interface import Mixing

SENDER, LINK, RECEIVER = range(3)  # purposes of a channel's draws


_Fields = NamedTuple(  # noqa: UP014 (the names stand in checkpoints)
    "_Fields", [("told", tuple[Any, ...]), ("links", tuple[Any, ...]), ("heard", tuple[Any, ...])]
)


class ChannelStates(_Fields):
    """States of the channels: of the senders per stage, the links, the receivers per stage."""


@pytrees.pytree
class LossyMixer(Mixing):
    """Mixer that applies the channels in order and damps the change by gamma."""

    links: LinkMixer
    channels: tuple[Any, ...]
    gamma: Any
    agents: int = field(metadata={"static": True})
    has_states = True

    def start(self, messages: Sequence[Any]) -> ChannelStates:
        """Return the states; a message without arrays is not sent and has none."""
        zeros_of_agents = lambda a: jnp.zeros((self.agents, *a.shape), a.dtype)
        blank = [jax.tree.map(zeros_of_agents, message) for message in messages]
        channels_of_stage = [
            self.channels if jax.tree.leaves(message) else () for message in messages
        ]
        for message, channels in zip(messages, channels_of_stage):
            for channel in channels:
                channel.check(message)
        sender_states, receiver_states = (
            tuple(
                tuple(jax.vmap(getattr(channel, name))(message) for channel in channels)
                for message, channels in zip(blank, channels_of_stage)
            )
            for name in ("start_sender", "start_receiver")
        )
        return ChannelStates(
            sender_states,
            tuple(channel.start_links(self.agents) for channel in self.channels),
            receiver_states,
        )

    def exchange(
        self, message: Any, exchange_id: ExchangeId, states: ChannelStates
    ) -> tuple[Any, ChannelStates]:
        """Return the change in the round of `exchange_id`, and the new states."""
        if not jax.tree.leaves(message):
            return message, states
        sender_states, links, receiver_states = map(list, states)
        senders, gates = list(sender_states[exchange_id.stage]), []
        received = message
        for k, channel in enumerate(self.channels):
            received, senders[k] = jax.vmap(channel.outgoing)(
                senders[k], received, self._keys(exchange_id, k, SENDER)
            )
            gate, links[k] = channel.gates(links[k], self._link_draw(exchange_id, k), self.agents)
            gates += [gate] if gate is not None else []
        sender_states[exchange_id.stage] = tuple(senders)
        senders_know = all(channel.senders_know for channel in self.channels)
        weights = self.links.weights_at(exchange_id.t, compose_gates(gates), senders_know)
        change, receivers = weights.change(received), list(receiver_states[exchange_id.stage])
        for k, channel in enumerate(self.channels):
            keys = self._keys(exchange_id, k, RECEIVER)
            change, receivers[k] = channel.incoming(receivers[k], change, received, weights, keys)
        receiver_states[exchange_id.stage] = tuple(receivers)
        gamma = self.gamma(exchange_id.t) if callable(self.gamma) else self.gamma
        return pytrees.scale(gamma, change), ChannelStates(
            tuple(sender_states), tuple(links), tuple(receiver_states)
        )

    def mean(self, tree: Any) -> Any:
        """Return the exact mean, for which a lost message is sent again until it arrives."""
        return self.links.mean(tree)

    def gates(
        self, exchange_id: ExchangeId, link_states: Sequence[Any]
    ) -> tuple[list[GateFunction], tuple[Any, ...]]:
        """Return the effect of the links in this exchange, and their states."""
        effects = [
            channel.gates(links, self._link_draw(exchange_id, k), self.agents)
            for k, (channel, links) in enumerate(zip(self.channels, link_states))
        ]
        return [gate for gate, _ in effects if gate is not None], tuple(
            links for _, links in effects
        )

    def _keys(self, exchange_id: ExchangeId, position: int, purpose: int) -> jax.Array:
        """Return a key for each agent."""
        key = channel_key(exchange_id, position, purpose)
        return jax.vmap(lambda i: jax.random.fold_in(key, i))(jnp.arange(self.agents))

    def _link_draw(self, exchange_id: ExchangeId, position: int) -> Callable[..., Any]:
        """Return `draw(make, receivers, senders, one_way)`: `make` applied to each link's key.

        Both directions of an undirected link share a key, unless the draw is `one_way`.
        """
        key = channel_key(exchange_id, position, LINK)
        both_ways = self.links.totals is None

        def draw(make: Any, receivers: jax.Array, senders: jax.Array, one_way: bool) -> Any:
            a, b = jnp.broadcast_arrays(receivers, senders)
            if both_ways and not one_way:
                a, b = jnp.minimum(a, b), jnp.maximum(a, b)
            draw_one = lambda a, b: make(jax.random.fold_in(jax.random.fold_in(key, a), b))
            return jax.vmap(draw_one)(a.reshape(-1), b.reshape(-1)).reshape(a.shape)

        return draw


def channel_key(exchange_id: ExchangeId, position: int, purpose: int) -> jax.Array:
    """Return the key of the channel at `position` for one of its purposes."""
    return exchange_id.purpose(3 * position + purpose)


def compose_gates(gates: list[GateFunction]) -> GateFunction | None:
    """Compose the effects of several channels on a link."""
    if not gates:
        return None

    def gate(*ends: jax.Array) -> Gate:
        effects = [effect(*ends) for effect in gates]

        def product(name: str) -> jax.Array | None:
            if all(getattr(effect, name) is None for effect in effects):
                return None
            factor = lambda effect: (
                effect.up if getattr(effect, name) is None else getattr(effect, name)
            )
            return jnp.prod(jnp.stack([factor(effect) for effect in effects]), axis=0)

        up = jnp.prod(jnp.stack([effect.up for effect in effects]), axis=0)
        return Gate(up, product("gain"), product("noise"), product("effort"))

    return gate


def make_mixer(network: Network) -> Mixer | LinkMixer | LossyMixer | RobustMixer | MaskedMixer:
    """Return the mixer of `network`, in the form that is faster for its graph."""
    check_combination({"changing members": network.epochs, "parallel runs": True}, network.name)
    if network.mask_limit is not None:
        return masked_mixer(network)
    if network.defense is not None or network.lies:
        return robust_mixer(network)
    if network.kind == "symmetric" and not network.channels:
        return mixer(network)
    entries = max(phase.weights.nnz for phase in network.phases)
    # Links that are down in some rounds are summed in the order of sites, for the same bits.
    dense = network.base is None and prefers_dense(network.agents, entries)
    links = link_mixer(network, dense)
    if not network.channels:
        return links
    return LossyMixer(links, network.channels, network.damping, network.agents)
