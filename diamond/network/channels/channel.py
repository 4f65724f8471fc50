"""What a channel may do to a message: at the sender, on a link, at the receiver.

    heard_j = tell(told_j)                              what all who hear j take for its message
    c_i = sum_j M_ij gate_ij (heard_j - heard_i)        what the links let through
    c_i = hear(c_i)                                     what the receiver makes of it

Each is pure, with a state of its own, and random only by its key: a function of the seed, the
round, and the agent or the link.
"""

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NamedTuple, Protocol

import jax


class Gate(NamedTuple):
    """What links do in a round; arrays of one entry a link."""

    up: jax.Array  # 1, or 0 where nothing came and the receiver knows it
    gain: jax.Array | None = None  # what a number told is multiplied by, if not by `up`
    noise: jax.Array | None = None  # by how much noise is larger, if not `up`
    effort: jax.Array | None = None  # the amplitude that the sender needs, if not 1


Ends = Callable[[jax.Array, jax.Array], Gate]  # of links from (receivers, senders)


class Heard(Protocol):
    """What the receivers of a round know of the weights that came through."""

    def levels(self, powers: Any, loudest: bool) -> Any:
        """For each leaf: sqrt(sum_j (w_ij noise_ij)^2 p_j), or max_j w_ij effort_ij sqrt(p_j)."""


class Channel:
    """One that does nothing; what a kind of channel does, it says anew."""

    keeps_total: ClassVar[Any] = True  # whether the changes of totals add up to 0 over the agents
    breaks_links: ClassVar[Any] = False  # whether some messages never arrive
    senders_know: ClassVar[Any] = True  # of a message that is lost
    static_only: ClassVar[Any] = False  # whether links must stay the same

    @property
    def name(self) -> str:
        """What it is called in a line of text, with what tells it from its kind."""
        return type(self).__name__.lower()

    @property
    def gamma(self) -> float:
        """The share of the change that is safe to make."""
        return 1.0

    def check(self, message: Any) -> None:
        """Refuse a message, as shapes, that it cannot carry."""

    def start(self, message: Any) -> Any:
        """What an agent keeps, before its first such message."""

    def tell(self, kept: Any, message: Any, key: jax.Array) -> tuple[Any, Any]:
        """What others take for the message, and what the sender keeps."""
        return message, kept

    def start_links(self, agents: int) -> Any:
        """What links keep."""

    def gates(self, kept: Any, draw: Callable[..., Any], agents: int) -> tuple[Ends | None, Any]:
        """What links do in this exchange; `draw(shape, receivers, senders)` makes their keys."""
        return None, kept

    def start_heard(self, message: Any) -> Any:
        """What an agent keeps of what it heard."""

    def hear(
        self, kept: Any, change: Any, heard: Any, weights: Heard, keys: jax.Array
    ) -> tuple[Any, Any]:
        """The change of all agents as it is received; `heard` are all messages."""
        return change, kept

    def wire(self, message: Any) -> Any:
        """What travels in place of the message, as shapes."""
        return message


def check_channels(channels: Sequence[Any], changing: str | None) -> None:
    """Refuse channels that do not go together, or not on the network of the name `changing`.

    `changing` is None where the links stay the same.
    """
    for one in channels:
        if not isinstance(one, Channel):
            raise TypeError(f"{one!r} is no channel; make one by diamond.network.channels")
    copies = [one for one in channels if hasattr(one, "codec") and one.static_only]
    if sum(hasattr(one, "codec") for one in channels) > 1:
        raise ValueError("two compressions follow each other; one is enough")
    if copies and any(one.breaks_links for one in channels):
        raise ValueError(
            "differences need every message to arrive, and this channel loses some: compress with "
            "feedback='error', or send without loss"
        )
    if changing is not None and any(one.static_only for one in channels):
        raise ValueError(
            f"{changing} changes, and what receivers remember of their neighbours needs links "
            f"that stay the same: compress with feedback='error', or noise with accumulate=False"
        )
