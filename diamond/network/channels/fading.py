"""Radio links with Rayleigh or Rician fading."""

import math
from collections.abc import Callable
from dataclasses import field
from typing import Any, Literal

import jax
import jax.numpy as jnp

from diamond.core import pytrees
from diamond.network.channels.channel import Channel, Gate, GateFunction

Knowledge = Literal["both", "receiver", "none"]


@pytrees.pytree
class Fading(Channel):
    """Channel that multiplies by h, new in every exchange, symmetric, of mean power 1.

        h = sqrt(K / (K + 1)) + sqrt(1 / (K + 1)) CN(0, 1)     Rician; K = 0: Rayleigh

    "both" ends know h: the sender divides by h (truncated inversion); below |h|^2 = `threshold` the
    link is down. "receiver": the receiver divides, which amplifies its noise. "none": a number
    arrives multiplied by |h| / E|h|, which no averaging over neighbours undoes: totals change, and
    the error floor grows with the size of x.
    """

    direct: Any  # K
    threshold: Any
    knowledge: Knowledge = field(metadata={"static": True})
    mean: Any = 1.0  # E|h|

    @property
    def name(self) -> str:
        kind = f"rician({self.direct:g}" if self.direct else "rayleigh("
        return f"{kind}{', ' * bool(self.direct)}known to {self.knowledge})"

    @property
    def breaks_links(self) -> bool:
        return self.knowledge != "none"

    @property
    def keeps_total(self) -> bool:
        return self.knowledge != "none"

    def gates(self, state: Any, draw: Callable[..., Any], agents: int) -> tuple[GateFunction, Any]:
        def strength(key: jax.Array) -> jax.Array:
            a, b = jax.random.normal(key, (2,), jnp.float32) / jnp.sqrt(2 * (self.direct + 1))
            return jnp.hypot(a + jnp.sqrt(self.direct / (self.direct + 1)), b)

        def gate(receivers: jax.Array, senders: jax.Array) -> Gate:
            h = draw(strength, receivers, senders, False)
            if self.knowledge == "none":
                return Gate(jnp.ones_like(h), h / self.mean, jnp.ones_like(h) / self.mean)
            up = (h * h >= self.threshold).astype(h.dtype)
            weaker = up / jnp.maximum(h, jnp.sqrt(self.threshold))
            return Gate(up, None, weaker if self.knowledge == "receiver" else up, weaker)

        return gate, state


def fading(
    kind: Literal["rayleigh", "rician"] = "rayleigh",
    direct: float = 3.0,
    knowledge: Knowledge = "both",
    threshold: float = 0.1,
) -> Fading:
    """Fade messages by a random channel gain.

    Args:
        kind: "rayleigh" or "rician".
        direct: K, power of the direct path relative to the scattered power (Rician only).
        knowledge: who knows the gain: "both" ends, the "receiver", or "none".
        threshold: power (mean 1) below which a link is down.
    """
    if kind not in ("rayleigh", "rician"):
        raise ValueError(f"kind = {kind!r}; there are 'rayleigh' and 'rician'")
    if knowledge not in ("both", "receiver", "none"):
        raise ValueError(f"knowledge = {knowledge!r}; there are 'both', 'receiver' and 'none'")
    if not (direct >= 0 and threshold > 0):
        raise ValueError(f"direct = {direct} must be 0 or more, threshold = {threshold} above 0")
    k = 0.0 if kind == "rayleigh" else float(direct)
    return Fading(k, float(threshold), knowledge, _mean_strength(k))


def _mean_strength(k: float) -> float:
    """Return E|h| = sqrt(pi / (4 (K + 1))) ((1 + K) I_0(K / 2) + K I_1(K / 2)) exp(-K / 2)."""
    from scipy.special import ive

    bessel = (1 + k) * ive(0, k / 2) + k * ive(1, k / 2)
    return float(math.sqrt(math.pi / (4 * (k + 1))) * bessel)
