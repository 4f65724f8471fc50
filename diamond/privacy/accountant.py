"""Accounting of Gaussian mechanisms: epsilon of a number of rounds, and the noise for a budget.

A mechanism releases, several times per round, a sum of clipped values plus Gaussian noise of
`multiplier` times the sensitivity. Rényi divergences of the rounds add up (Mironov, 2017); those of
a Poisson sample of rows are smaller (Mironov, Talwar and Zhang, 2019). `dp-accounting` computes
both.
"""

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

# Orders at which divergences are evaluated; every order gives a valid bound.
ORDERS = (*range(2, 33), 36, 40, 44, 48, 56, 64, 80, 96, 128, 192, 256)
OVERFLOW_SHARE = 0.01  # share of delta for samples larger than the fixed size of a batch
LEAST_MULTIPLIER = 0.05
SIZE_STEP = 32  # so that most budgets have one size, and thus one program
PRECISION = 1e-3  # relative, of calibrated noise or of its epsilon, on the safe side


class Release(NamedTuple):
    """Releases per round that one row of a part of the data can influence."""

    rate: float  # probability with which a sample has the row; 1: no sampling is claimed
    per_round: int


class Mechanism(NamedTuple):
    """Noise multiplier, and the releases of every part of a site's rows."""

    multiplier: float
    releases: tuple[Release, ...]  # of the training and of the validation rows; a row is in one


class Spending(NamedTuple):
    """A mechanism, and the rounds that have run."""

    mechanism: Mechanism
    rounds: int


def import_accounting() -> Any:
    """Import dp-accounting, or explain how to install it."""
    try:
        from dp_accounting import dp_event, rdp
    except ImportError as error:
        raise ImportError(
            "privacy needs dp-accounting: pip install 'diamond-bilevel[privacy]'"
        ) from error
    return dp_event, rdp


@lru_cache(maxsize=4096)
def _divergences(rate: float, multiplier: float) -> np.ndarray:
    """Return the Rényi divergences of one release at `ORDERS`."""
    dp_event, rdp = import_accounting()
    accountant = rdp.RdpAccountant(ORDERS)
    event = dp_event.GaussianDpEvent(multiplier)
    accountant.compose(event if rate >= 1 else dp_event.PoissonSampledDpEvent(rate, event))
    result: np.ndarray = accountant.rdp
    return result


def spent_epsilon(spendings: Sequence[Spending], delta: float) -> float:
    """Return epsilon of all rounds together, for the part of the rows that they reveal most of."""
    spendings = [spending for spending in spendings if spending.rounds]
    if not spendings:
        return 0.0
    if any(spending.mechanism.multiplier <= 0 for spending in spendings):
        return math.inf
    _, rdp = import_accounting()
    samples = any(r.rate < 1 for s in spendings for r in s.mechanism.releases)
    delta = delta * (1 - OVERFLOW_SHARE * len(spendings) * samples)
    if delta <= 0:
        return math.inf
    parts = max(len(spending.mechanism.releases) for spending in spendings)
    largest = 0.0
    for part in range(parts):
        total = np.zeros(len(ORDERS))
        for (multiplier, releases), rounds in spendings:
            rate, per_round = releases[min(part, len(releases) - 1)]
            if per_round:
                total = total + rounds * per_round * _divergences(rate, multiplier)
        if total.any():
            largest = max(largest, float(rdp.compute_epsilon(ORDERS, total, delta)[0]))
    return largest


def epsilon_after(mechanism: Mechanism, rounds: int, delta: float) -> float:
    """Return epsilon of the first `rounds` rounds."""
    return spent_epsilon([Spending(mechanism, rounds)], delta)


@lru_cache(maxsize=1024)
def calibrate_multiplier(
    epsilon: float, delta: float, rounds: int, releases: tuple[Release, ...]
) -> float:
    """Return the least noise multiplier with which `rounds` rounds stay within the budget."""
    if math.isinf(epsilon) or rounds == 0:
        return 0.0
    excess = lambda z: math.log(epsilon_after(Mechanism(z, releases), rounds, delta) / epsilon)
    low, high, above, below = 0.0, 1.0, math.nan, excess(1.0)
    while below > 0:
        low, high, above = high, 2 * high, below
        if high > 1e9:
            raise ValueError(
                f"no noise keeps {rounds} rounds within epsilon = {epsilon:g}, delta = {delta:g}: "
                f"raise the budget"
            )
        below = excess(high)
    while not low:
        middle = high / 2
        if (value := excess(middle)) > 0 or middle < LEAST_MULTIPLIER:
            low, above = middle, max(value, 0.0)
        else:
            high, below = middle, value
    while high / low > 1 + PRECISION:  # interpolates logarithms, which are nearly a line
        share = min(max(above / (above - below), 0.1), 0.9) if above > below else 0.5
        middle = low * (high / low) ** share * (1 + PRECISION / 4)
        middle = middle if low < middle < high else math.sqrt(low * high)
        value = excess(middle)
        if value <= 0:
            high, below = middle, value
        else:
            low, above = middle, value
        if -PRECISION < below <= 0:
            break
    return high


@lru_cache(maxsize=1024)
def rounds_within(mechanism: Mechanism, epsilon: float, delta: float) -> int:
    """Return the largest number of rounds that stays within the budget."""
    if math.isinf(epsilon):
        return 2**31 - 1
    fits = lambda rounds: epsilon_after(mechanism, rounds, delta) <= epsilon
    if not fits(1):
        return 0
    low, high = 1, 2
    while high < 2**31 - 1 and fits(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def padded_size(batch: int, epsilon: float, delta: float, releases: int) -> int:
    """Return a size that samples of `batch` rows on average exceed with negligible probability.

    By the Chernoff bound P(n >= u b) <= exp(-b (u log u - u + 1)). A larger sample loses rows; with
    p the probability of any such sample, (epsilon, delta) becomes (epsilon, delta + (1 + e^epsilon)
    p), and that addition is at most `OVERFLOW_SHARE` of delta.
    """
    tolerated = OVERFLOW_SHARE * delta / (1 + math.exp(min(epsilon, 50.0))) / max(releases, 1)
    size = batch + 1
    exponent = lambda n: batch * (n / batch * math.log(n / batch) - n / batch + 1)
    while exponent(size + 1) < -math.log(tolerated):
        size += 1
    return size + -size % SIZE_STEP
