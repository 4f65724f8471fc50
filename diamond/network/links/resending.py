"""Delay of a message by resent packets."""

from typing import Any

import numpy as np

from diamond.network.links.link_values import Numbers

PACKET = 1448  # bytes of a TCP stream in an Ethernet frame
NEVER = 1e-9  # probability that is neglected


def packets(count: float) -> int:
    """Return the number of packets of a message of `count` bytes."""
    return max(1, -(-int(count) // PACKET))


def chances(seed: int, t: int, shape: tuple[int, ...]) -> Numbers:
    """Draw uniform numbers between 0 and 1, a function of the seed and the round."""
    key = np.array([seed % 2**64, t], np.uint64)
    return np.random.Generator(np.random.Philox(key=key, counter=[0, 0, 0, 1])).random(shape)


def resends(loss: Numbers, number: int, chance: Any) -> Numbers:
    """Return G, the number of resends of the unluckiest of `number` packets.

        P(G <= k) = (1 - loss^(k + 1))^number

    at the quantile `chance`, uniform between 0 and 1; one value per link.
    """
    tail = np.maximum(-np.expm1(np.log(np.maximum(chance, NEVER)) / number), NEVER)
    with np.errstate(divide="ignore"):
        return np.maximum(np.ceil(np.log(tail) / np.log(loss)) - 1, 0.0)


def mean_resends(loss: Numbers, number: int) -> Numbers:
    """Return the mean of G: sum_k P(G > k)."""
    mean, exceedance = np.zeros_like(loss), np.ones_like(loss)
    k = 0
    while (exceedance > NEVER).any():
        k += 1
        exceedance = -np.expm1(number * np.log1p(-(loss**k)))
        mean = mean + exceedance
    return mean
