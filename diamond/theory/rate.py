"""Measured rates: the slope of the average metric, and the cost to reach an accuracy."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy import stats

from ..records.run import Run

Runs = Run | Mapping[str, Any] | Sequence[Run | Mapping[str, Any]]


class Slope(NamedTuple):
    """Exponent of a power law, with its 95 % confidence interval over the runs; NaN for one run."""

    value: float
    low: float
    high: float


class Rate(NamedTuple):
    """Decay of the average of M_t, and the mean cost over the runs until it is below epsilon."""

    slope: Slope
    costs: dict[float, dict[str, float]]  # epsilon -> along -> cost; infinite if not reached


def rate(
    runs: Runs,
    first: int | None = None,
    epsilons: Sequence[float] = (),
    along: Sequence[str] = ("round", "samples", "bytes"),
    since: float = 0.0,
) -> Rate:
    """Measure the slope of the average metric, and the costs to reach accuracies.

    Theorem 1 predicts a slope of -2/3, and its corollary costs that grow like epsilon^(-3/2).

    Args:
        runs: a `Run`, a history, or several of either that differ in their seeds.
        first: first round of the fit; by default a tenth of the rounds.
        epsilons: accuracies to reach.
        along: costs to report.
        since: see `averages`.
    """
    all_histories = histories(runs)
    if first is None:
        first = int(all_histories[0]["round"][-1]) // 10
    costs = {
        epsilon: {
            name: float(np.mean([reached(history, epsilon, name) for history in all_histories]))
            for name in along
        }
        for epsilon in epsilons
    }
    return Rate(slope(all_histories, first, since), costs)


def histories(runs: Runs) -> list[Mapping[str, Any]]:
    """Return the histories of a run, or of several."""
    several = [runs] if isinstance(runs, Run | Mapping) else list(runs)
    if not several:
        raise ValueError("there is no run to take a rate of; give at least one")
    return [run.history if isinstance(run, Run) else run for run in several]


def averages(rounds: np.ndarray, metric: np.ndarray, since: float = 0.0) -> np.ndarray:
    """Return 1/T sum_{t<=T} M_t at every measured T > 0, each interval counted at its end.

    This leaves out M_0, which is ten to a thousand times larger than what follows and lasts only a
    few rounds. With `since`, the average is over since T < t <= T: the exponent of a power law is
    the same, but values from before the power law holds drop out.
    """
    sums = np.concatenate([[0.0], np.cumsum(np.diff(rounds) * metric[1:])])
    past = np.interp(since * rounds[1:], rounds, sums)
    return (sums[1:] - past) / ((1 - since) * rounds[1:])


def slope(runs: Runs, first: int, since: float = 0.0) -> Slope:
    """Return d log(average metric) / d log T from round `first` on, by least squares per run."""
    fits = []
    for history in histories(runs):
        rounds, metric = np.array(history["round"]), np.array(history["metric"])
        in_fit = rounds[1:] >= first
        if in_fit.sum() < 2:
            raise ValueError(
                f"{in_fit.sum()} evaluations from round {first} on: a slope needs two; evaluate "
                f"more often, or start earlier"
            )
        average = averages(rounds, metric, since)[in_fit]
        fits.append(np.polyfit(np.log(rounds[1:][in_fit]), np.log(average), 1)[0])
    mean, half = float(np.mean(fits)), float("nan")
    if len(fits) > 1:
        half = float(stats.t.ppf(0.975, len(fits) - 1) * np.std(fits, ddof=1) / np.sqrt(len(fits)))
    return Slope(mean, mean - half, mean + half)


def reached(history: Run | Mapping[str, Any], epsilon: float, along: str) -> float:
    """Return the cost until the average metric falls to `epsilon`; infinite if never."""
    (history,) = histories(history)
    rounds, metric = np.array(history["round"]), np.array(history["metric"])
    below = np.flatnonzero(averages(rounds, metric) <= epsilon)
    return float(np.array(history[along])[1:][below[0]]) if below.size else float("inf")
