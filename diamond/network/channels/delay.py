"""Channel that delays messages."""

import math
from dataclasses import field
from typing import Any

import jax
import jax.numpy as jnp

from diamond.core import pytrees
from diamond.core.validation import as_int
from diamond.network.channels.channel import Channel


@pytrees.pytree
class Delay(Channel):
    """Channel with c_i = gamma sum_j M_ij (s_j - s_i) of `rounds` exchanges ago.

    Both ends use the same old values, so totals are preserved. Stable for gamma below sin(pi / (2
    (2 d + 1))) for every mixing matrix.
    """

    rounds: int = field(metadata={"static": True})

    @property
    def name(self) -> str:
        return f"delay({self.rounds})"

    @property
    def gamma(self) -> float:
        return 0.9 * math.sin(math.pi / (2 * (2 * self.rounds + 1))) if self.rounds else 1.0

    def start_sender(self, message: Any) -> Any:
        return jax.tree.map(lambda a: jnp.zeros((self.rounds, *a.shape), a.dtype), message)

    def outgoing(self, state: Any, message: Any, key: jax.Array) -> tuple[Any, Any]:
        if not self.rounds:
            return message, state
        new_state = jax.tree.map(lambda b, a: jnp.concatenate([b[1:], a[None]]), state, message)
        return jax.tree.map(lambda b: b[0], state), new_state


def delay(rounds: int) -> Delay:
    """Delay every message by `rounds` exchanges; nothing arrives before the first message does."""
    return Delay(as_int("rounds", rounds, 0))
