"""Encoder and decoder of a channel between sites.

For itself and for every neighbour, a site keeps the state that all receivers share about that
agent's messages; both ends compute it from the same bytes. Only operations of the sender are real
here, compression and delay; the link itself determines losses.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from ...core.exclusions import check_combination
from ...core.sampling import ExchangeId
from ...network import Network
from ...network.channels.compressed_channel import Compressed
from ...network.channels.delay import Delay
from ...network.mixing.lossy_mixer import SENDER, channel_key

ChannelStates = tuple[Any, ...]  # state of each channel, for each source


@dataclass(frozen=True)
class ChannelCodec:
    """Channels of a network at a site: the first may compress, the others delay."""

    compressor: Compressed | None
    delays: tuple[Delay, ...]
    damping: Any

    def encoded_shapes(self, message: Any) -> Any:
        """Return the shapes of the encoded message."""
        return message if self.compressor is None else self.compressor.wire(message)

    def initial_states(self, message: Any, agents: int) -> ChannelStates:
        """Return the initial state of each of `agents` agents."""
        blank = jax.tree.map(lambda a: jnp.zeros(a.shape, a.dtype), message)
        compressor_state = None if self.compressor is None else self.compressor.start_sender(blank)
        return tuple(
            (compressor_state, *(delay.start_sender(blank) for delay in self.delays))
            for _ in range(agents)
        )

    def encode(self, state: Any, message: Any, exchange_id: ExchangeId, number: int) -> Any:
        """Encode the message of agent `number`, with its channel state."""
        if self.compressor is None:
            return message
        return _encode(self.compressor, state[0], message, _key(exchange_id, number))

    def decode(
        self, state: Any, encoded: Any, like: Any, exchange_id: ExchangeId, number: int
    ) -> Any:
        """Decode the message of agent `number`; `like` is a message, for its shapes."""
        if self.compressor is None:
            return encoded
        return _decode(self.compressor, state[0], encoded, like, key=_key(exchange_id, number))

    def receive(
        self,
        states: ChannelStates,
        own_message: Any,
        own_index: int,
        encoded: Sequence[Any],
        exchange_id: ExchangeId,
        sources: list[int],
    ) -> tuple[list[Any], ChannelStates]:
        """Decode the messages of `sources`, and update the states; `own_message` is the agent's."""
        messages, new_states, unused_key = [], [], jax.random.key(0)  # a delay draws nothing
        for index, (number, received, state) in enumerate(zip(sources, encoded, states)):
            message = self.decode(state, received, own_message, exchange_id, number)
            new_state = list(state)
            if self.compressor is not None and self.compressor.feedback == "difference":
                new_state[0] = message
            elif self.compressor is not None and index == own_index:  # others do not know its error
                new_state[0] = self.compressor.next_state(state[0], own_message, message)
            for k, delay in enumerate(self.delays, 1):
                message, new_state[k] = delay.outgoing(new_state[k], message, unused_key)
            messages.append(message)
            new_states.append(tuple(new_state))
        return messages, tuple(new_states)

    def damping_at(self, t: int) -> Any:
        """Return the share of a change that is applied in round t."""
        return self.damping(t) if callable(self.damping) else self.damping


def make_channel_codec(network: Network) -> ChannelCodec | None:
    """Return the encoder and decoder of `network`; None if it has no channels."""
    if not network.channels:
        return None
    first, *rest = network.channels
    compressor = first if isinstance(first, Compressed) else None
    delays = tuple(rest if compressor is not None else network.channels)
    for channel in delays:
        used = {"simulated channels": not isinstance(channel, Delay), "sites": True}
        check_combination(used, channel.name, "sites")
    return ChannelCodec(compressor, delays, network.damping)


@jax.jit
def _encode(compressor: Compressed, state: Any, message: Any, key: jax.Array) -> Any:
    return compressor.to_bytes(compressor.encode(state, message, key), message)


@jax.jit
def _decode(compressor: Compressed, copy: Any, encoded: Any, like: Any, *, key: jax.Array) -> Any:
    return compressor.decode(copy, compressor.from_bytes(encoded, like), like, key)


def _key(exchange_id: ExchangeId, number: int) -> jax.Array:
    """Return the key of an agent, as in `LossyMixer`; compressing channels come first."""
    return jax.random.fold_in(channel_key(exchange_id, 0, SENDER), number)
