"""Interface of channels: hooks at the sender, on a link, and at the receiver.

    r_j = outgoing(s_j)                     message of j as its receivers see it
    c_i = sum_j M_ij gate_ij (r_j - r_i)    change after the links
    c_i = incoming(c_i)                     change after the receiver

Each hook is pure, has its own state, and is random only by its key: a function of the seed, the
round, and the agent or the link.
"""

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NamedTuple, Protocol

import jax


class Gate(NamedTuple):
    """Effect of the links in a round; arrays with one entry per link."""

    up: jax.Array  # 1, or 0 if nothing arrived and the receiver knows
    gain: jax.Array | None = None  # factor of a received number, if not `up`
    noise: jax.Array | None = None  # amplification of noise, if not `up`
    effort: jax.Array | None = None  # amplitude that the sender needs, if not 1


GateFunction = Callable[[jax.Array, jax.Array], Gate]  # of (receivers, senders) of the links


class ReceivedWeights(Protocol):
    """Mixing weights of a round after the links, as known to the receivers."""

    def noise_levels(self, powers: Any, loudest: bool) -> Any:
        """Return per leaf sqrt(sum_j (w_ij noise_ij)^2 p_j), or max_j w_ij effort_ij sqrt(p_j)."""


class Channel:
    """Identity channel; subclasses override the hooks they need."""

    keeps_total: ClassVar[Any] = True  # whether changes of totals sum to 0 over the agents
    breaks_links: ClassVar[Any] = False  # whether messages can be lost
    senders_know: ClassVar[Any] = True  # whether senders know of lost messages
    static_only: ClassVar[Any] = False  # whether the links must not change
    compresses: ClassVar[bool] = False  # whether it has a codec

    @property
    def name(self) -> str:
        """Short name with the parameters, for a line of text."""
        return type(self).__name__.lower()

    @property
    def gamma(self) -> float:
        """Damping factor of the change that is stable."""
        return 1.0

    @property
    def tries(self) -> float | None:
        """Mean number of sends until a message arrives as it is; None: it does not."""
        return None

    def check(self, message: Any) -> None:
        """Reject a message, given as shapes, that the channel cannot carry."""

    def start_sender(self, message: Any) -> Any:
        """Return the sender's state before its first message of these shapes."""

    def outgoing(self, state: Any, message: Any, key: jax.Array) -> tuple[Any, Any]:
        """Return the message as received, and the new state of the sender."""
        return message, state

    def start_links(self, agents: int) -> Any:
        """Return the initial state of the links."""

    def gates(
        self, state: Any, draw: Callable[..., Any], agents: int
    ) -> tuple[GateFunction | None, Any]:
        """Return the effect of the links, and their new state.

        `draw(make, receivers, senders, one_way)` calls `make` with the key of each link.
        """
        return None, state

    def start_receiver(self, message: Any) -> Any:
        """Return the receiver's initial state."""

    def incoming(
        self, state: Any, change: Any, messages: Any, weights: ReceivedWeights, keys: jax.Array
    ) -> tuple[Any, Any]:
        """Return the received change and the new states, of all agents, given all `messages`."""
        return change, state

    def wire(self, message: Any) -> Any:
        """Return the transmitted data, as shapes."""
        return message


def check_channels(channels: Sequence[Any]) -> None:
    """Reject objects that are no channels."""
    for channel in channels:
        if not isinstance(channel, Channel):
            raise TypeError(f"{channel!r} is no channel; make one by diamond.network.channels")
