"""Receiver noise, on every link or on a sum computed over the air."""

import math
from dataclasses import field
from typing import Any

import jax
import jax.numpy as jnp

from diamond.core import pytrees
from diamond.network.channels.channel import Channel, ReceivedWeights


@pytrees.pytree
class Noise(Channel):
    """Additive Gaussian noise at the receiver.

        a link           s_j + sigma_j n_ij,  so c_i + sqrt(sum_j (M_ij sigma_j)^2) n_i
        over the air     c_i + sigma max_j (M_ij rms(s_j)) / sqrt(power) n_i: neighbours send at
                         once, each as loud as its power allows, and the weakest sets the scale

    sigma_j is `sigma`, or rms(s_j) 10^(-snr / 20). The mean of x then wanders by gamma^2 times the
    noise, and the gradient pulls it back. A tracker has no such gradient: its noise would
    accumulate. Therefore agents send the running sum of a total (Pu, 2020), and the change is the
    difference of successive sums: the noise n_t - n_{t-1} cancels in the next round, and sum u =
    sum p holds up to the noise of one round.
    """

    sigma: Any  # None: given by snr
    snr: Any = None  # dB
    power: Any = None  # for over the air
    accumulate: bool = field(default=True, metadata={"static": True})
    keeps_total = False

    @property
    def name(self) -> str:
        if self.power is not None:
            return f"over_the_air({self.power:g})"
        return f"noise({self.snr:g} dB)" if self.sigma is None else f"noise({self.sigma:g})"

    @property
    def static_only(self) -> bool:
        return self.accumulate

    def start_sender(self, message: Any) -> Any:
        return pytrees.zeros(message.total) if self.accumulate else None

    def outgoing(self, state: Any, message: Any, key: jax.Array) -> tuple[Any, Any]:
        if not self.accumulate:
            return message, state
        state = pytrees.add(state, message.total)
        return message._replace(total=state), state

    def start_receiver(self, message: Any) -> Any:
        return pytrees.zeros(message.total) if self.accumulate else None

    def incoming(
        self, state: Any, change: Any, messages: Any, weights: ReceivedWeights, keys: jax.Array
    ) -> tuple[Any, Any]:
        mean_square = lambda a: jnp.mean(jnp.square(a), axis=tuple(range(1, a.ndim)))
        over_the_air = self.power is not None
        signals = (
            messages
            if over_the_air or self.sigma is None
            else jax.tree.map(jnp.ones_like, messages)
        )
        noise_levels = weights.noise_levels(jax.tree.map(mean_square, signals), over_the_air)
        scale = 10 ** (-self.snr / 20) if self.sigma is None else self.sigma
        scale = scale / jnp.sqrt(self.power) if over_the_air else scale
        standard_noise = jax.vmap(lambda key, a: pytrees.normal(key, a))(keys, change)

        def add_noise(c: jax.Array, level: jax.Array, n: jax.Array) -> jax.Array:
            return c + (scale * level).astype(c.dtype).reshape(-1, *[1] * (c.ndim - 1)) * n

        noisy = jax.tree.map(add_noise, change, noise_levels, standard_noise)
        if not self.accumulate:
            return noisy, state
        return noisy._replace(total=pytrees.sub(noisy.total, state)), noisy.total


def noise(snr: float | None = None, sigma: float | None = None, accumulate: bool = True) -> Noise:
    """Add noise to every link.

    Args:
        snr: signal-to-noise ratio of each message in decibels.
        sigma: standard deviation of the noise, instead of `snr`.
        accumulate: send running sums of totals. With False, a tracker drifts like the square root
            of the number of rounds.
    """
    if (snr is None) == (sigma is None):
        raise ValueError("give either snr, in decibels, or sigma, a deviation")
    return Noise(_check_sigma(sigma), _check_finite("snr", snr), None, bool(accumulate))


def over_the_air(power: float, sigma: float = 1.0, accumulate: bool = True) -> Noise:
    """Sum messages over the air: receivers get sum_j M_ij s_j at once, with noise.

    Args:
        power: maximum mean power per number of a message.
        sigma: standard deviation of the noise.
        accumulate: as in `noise`.
    """
    if not power > 0:
        raise ValueError(f"power = {power}: what agents send with must be above 0")
    return Noise(_check_sigma(sigma), None, float(power), bool(accumulate))


def _check_sigma(sigma: float | None) -> float | None:
    if sigma is not None and not 0 <= sigma < math.inf:
        raise ValueError(f"sigma = {sigma}: a deviation is 0 or more")
    return None if sigma is None else float(sigma)


def _check_finite(name: str, value: float | None) -> float | None:
    if value is not None and not math.isfinite(value):
        raise ValueError(f"{name} = {value} must be a number")
    return None if value is None else float(value)
