"""How fast: the slope of the average metric, and what it takes to reach a given accuracy."""

from typing import NamedTuple

import numpy as np
from scipy import stats


class Slope(NamedTuple):
    """Exponent of a power law, with its 95 % confidence interval over the seeds."""

    value: float
    low: float
    high: float


def averages(rounds: np.ndarray, metric: np.ndarray) -> np.ndarray:
    """1/T sum_{t<=T} M_t at every measured T > 0, each interval counted at its end.

    So M_0, ten to a thousand times what follows and over within a few rounds, is left out.
    """
    return np.cumsum(np.diff(rounds) * metric[1:]) / rounds[1:]


def slope(histories: list[dict], first: int) -> Slope:
    """d log(average metric) / d log T from round `first` on: Theorem 1 promises -2/3."""
    fits = []
    for history in histories:
        rounds, metric = np.array(history["round"]), np.array(history["metric"])
        kept = rounds[1:] >= first
        fit = np.polyfit(np.log(rounds[1:][kept]), np.log(averages(rounds, metric)[kept]), 1)
        fits.append(fit[0])
    mean = float(np.mean(fits))
    half = 0.0
    if len(fits) > 1:
        half = float(stats.t.ppf(0.975, len(fits) - 1) * np.std(fits, ddof=1) / np.sqrt(len(fits)))
    return Slope(mean, mean - half, mean + half)


def reached(history: dict, epsilon: float, along: str) -> float:
    """Rounds (or samples, ...) until the average metric falls to `epsilon`; infinite if never."""
    rounds, metric = np.array(history["round"]), np.array(history["metric"])
    below = np.flatnonzero(averages(rounds, metric) <= epsilon)
    return float(np.array(history[along])[1:][below[0]]) if below.size else float("inf")
