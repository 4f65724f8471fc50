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

from ..core.sampling import Moment
from ..network import Network
from ..network.channels.compression import Compressed
from ..network.channels.delay import Delay
from ..network.mixing.lossy_mixer import TOLD, channel_key

Kept = tuple[Any, ...]  # state of each channel, for each source


@dataclass(frozen=True)
class ChannelEnds:
    """Channels of a network at a site: the first may compress, the others delay."""

    codec: Compressed | None
    delays: tuple[Delay, ...]
    damping: Any

    def wire(self, message: Any) -> Any:
        """Return the shapes of the encoded message."""
        return message if self.codec is None else self.codec.wire(message)

    def start(self, message: Any, agents: int) -> Kept:
        """Return the initial state of each of `agents` agents."""
        blank = jax.tree.map(lambda a: jnp.zeros(a.shape, a.dtype), message)
        own = None if self.codec is None else self.codec.start(blank)
        return tuple((own, *(late.start(blank) for late in self.delays)) for _ in range(agents))

    def encode(self, kept: Any, message: Any, moment: Moment, number: int) -> Any:
        """Encode the message of agent `number`, with its state `kept`."""
        if self.codec is None:
            return message
        return _encode(self.codec, kept[0], message, _key(moment, number))

    def decode(self, kept: Any, wire: Any, like: Any, moment: Moment, number: int) -> Any:
        """Decode the message of agent `number`; `like` is a message, for its shapes."""
        if self.codec is None:
            return wire
        return _decode(self.codec, kept[0], wire, like, _key(moment, number))

    def hear(
        self, kept: Kept, own: Any, here: int, wires: Sequence[Any], moment: Moment, who: list[int]
    ) -> tuple[list[Any], Kept]:
        """Decode the messages of `who` and update the state; `own` is the agent's own message."""
        said, after = [], []
        for place, (number, wire, memory) in enumerate(zip(who, wires, kept)):
            spoken, now = self.decode(memory, wire, own, moment, number), list(memory)
            if self.codec is not None and self.codec.feedback == "difference":
                now[0] = spoken
            elif self.codec is not None and place == here:  # only the sender knows its error
                now[0] = self.codec.remembered(memory[0], own, spoken)
            for k, late in enumerate(self.delays, 1):
                spoken, now[k] = late.tell(now[k], spoken, self._none)
            said.append(spoken)
            after.append(tuple(now))
        return said, tuple(after)

    def share(self, t: int) -> Any:
        """Return the share of a change that is applied in round t."""
        return self.damping(t) if callable(self.damping) else self.damping

    @property
    def _none(self) -> jax.Array:
        return jax.random.key(0)  # a delay draws nothing


def channel_ends(network: Network) -> ChannelEnds | None:
    """Return the encoder and decoder of `network`; None if it has no channels."""
    if not network.channels:
        return None
    first, *rest = network.channels
    codec = first if isinstance(first, Compressed) else None
    late = tuple(rest if codec is not None else network.channels)
    for one in late:
        if not isinstance(one, Delay):
            raise ValueError(
                f"{one.name} is of simulated links, and those between sites are what they are: "
                f"sites take one compression, and delays after it"
            )
    return ChannelEnds(codec, late, network.damping)


@jax.jit
def _encode(codec: Compressed, kept: Any, message: Any, key: jax.Array) -> Any:
    return codec.squeezed(codec.encode(kept, message, key), message)


@jax.jit
def _decode(codec: Compressed, copy: Any, wire: Any, like: Any, key: jax.Array) -> Any:
    return codec.decode(copy, codec.expanded(wire, like), like, key)


def _key(moment: Moment, number: int) -> jax.Array:
    """Return the key of an agent, as in `LossyMixer`; compressing channels come first."""
    return jax.random.fold_in(channel_key(moment, 0, TOLD), number)
