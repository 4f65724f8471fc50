"""Channel that loses messages."""

from collections.abc import Callable
from dataclasses import field
from typing import Any, Literal

import jax
import jax.numpy as jnp

from diamond.core import pytrees
from diamond.network.channels.channel import Channel, Gate, GateFunction

UNKNOWN = 2  # state of a link before its first message

LossKnowledge = Literal["both", "receiver"]


@pytrees.pytree
class Drops(Channel):
    """Channel that loses a message with probability `loss`, in bursts of mean length `burst`.

    Gilbert and Elliott: a link is good or bad, and a bad link loses everything,

        good to bad   loss / (burst (1 - loss))        bad to good   1 / burst

    If both ends know (an edge is down in both directions), both add the weight to their diagonal,
    and totals are preserved. If only the receiver knows, only the receiver does: every loss changes
    the total, and a tracker no longer sums to the right value.
    """

    loss: Any
    burst: Any  # None: losses are independent
    known: LossKnowledge = field(metadata={"static": True})
    breaks_links = True

    @property
    def name(self) -> str:
        burst = "" if self.burst is None else f", burst={self.burst:g}"
        return f"drops({self.loss:g}{burst}{', receiver' * (self.known == 'receiver')})"

    @property
    def keeps_total(self) -> bool:
        return self.known == "both"

    @property
    def senders_know(self) -> bool:
        return self.known == "both"

    @property
    def tries(self) -> float:
        return 1 / (1 - self.loss) if self.burst is None else 1 + self.loss * self.burst

    def start_links(self, agents: int) -> Any:
        return None if self.burst is None else jnp.full((agents, agents), UNKNOWN, jnp.uint8)

    def gates(self, state: Any, draw: Callable[..., Any], agents: int) -> tuple[GateFunction, Any]:
        one_way = self.known == "receiver"
        chance = lambda key: jax.random.uniform(key, (), jnp.float32)
        uniform = lambda receivers, senders: draw(chance, receivers, senders, one_way)
        if state is None:
            arrived = lambda receivers, senders: uniform(receivers, senders) >= self.loss
        else:
            agent_numbers = jnp.arange(agents)
            u = uniform(agent_numbers[:, None], agent_numbers[None])
            to_bad = self.loss / (self.burst * (1 - self.loss))
            bad = jnp.where(state == 1, u >= 1 / self.burst, u < to_bad)
            state = jnp.where(state == UNKNOWN, u < self.loss, bad).astype(jnp.uint8)
            arrived = lambda receivers, senders: state[receivers, senders] == 0
        return (lambda *ends: Gate(arrived(*ends).astype(jnp.float32))), state


def drops(loss: float, burst: float | None = None, known: LossKnowledge = "both") -> Drops:
    """Lose a share of the messages, independently or in bursts.

    Args:
        loss: probability of losing a message.
        burst: mean number of successive losses; None: losses are independent.
        known: who knows of a loss, "both" ends or only the "receiver".
    """
    if not 0 <= loss < 1:
        raise ValueError(f"loss = {loss}: a share from 0 to below 1; at 1 nothing would arrive")
    if burst is not None and burst * (1 - loss) < max(loss, 1 - loss):
        raise ValueError(
            f"burst = {burst}: at a loss of {loss} bursts last "
            f"{max(1.0, loss / (1 - loss)):.3g} or more"
        )
    if known not in ("both", "receiver"):
        raise ValueError(f"known = {known!r}; there are 'both' and 'receiver'")
    return Drops(float(loss), None if burst is None else float(burst), known)
