"""How fast: the slope of the average metric, and what it takes to reach a given accuracy."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy import stats

from ..runs.run import Run

Runs = Run | Mapping[str, Any] | Sequence[Run | Mapping[str, Any]]


class Slope(NamedTuple):
    """Exponent of a power law, with its 95 % confidence interval over the runs; NaN for one run."""

    value: float
    low: float
    high: float


class Rate(NamedTuple):
    """How the average of M_t falls, and the mean cost over the runs to have it below epsilon."""

    slope: Slope
    costs: dict[float, dict[str, float]]  # epsilon -> along -> cost; infinite if a run never did


def rate(
    runs: Runs,
    first: int | None = None,
    epsilons: Sequence[float] = (),
    along: Sequence[str] = ("round", "samples", "bytes"),
    since: float = 0.0,
) -> Rate:
    """The slope from round `first` on (a tenth of the rounds if None), and costs to reach epsilon.

    `runs`: a `Run`, a history, or several of either that differ in their seeds. Theorem 1 promises
    a slope of -2/3, and its corollary costs that grow like epsilon^(-3/2). `since`: see `averages`.
    """
    found = histories(runs)
    if first is None:
        first = int(found[0]["round"][-1]) // 10
    costs = {
        epsilon: {
            name: float(np.mean([reached(history, epsilon, name) for history in found]))
            for name in along
        }
        for epsilon in epsilons
    }
    return Rate(slope(found, first, since), costs)


def histories(runs: Runs) -> list[Mapping[str, Any]]:
    """The histories of a run, or of several."""
    several = [runs] if isinstance(runs, Run | Mapping) else list(runs)
    if not several:
        raise ValueError("there is no run to take a rate of; give at least one")
    return [run.history if isinstance(run, Run) else run for run in several]


def averages(rounds: np.ndarray, metric: np.ndarray, since: float = 0.0) -> np.ndarray:
    """1/T sum_{t<=T} M_t at every measured T > 0, each interval counted at its end.

    So M_0, ten to a thousand times what follows and over within a few rounds, is left out. With
    `since`, the average is over since T < t <= T: a power law's exponent is the same, but what was
    before the law held is soon forgotten, while in the whole average it lasts.
    """
    sums = np.concatenate([[0.0], np.cumsum(np.diff(rounds) * metric[1:])])
    past = np.interp(since * rounds[1:], rounds, sums)
    return (sums[1:] - past) / ((1 - since) * rounds[1:])


def slope(runs: Runs, first: int, since: float = 0.0) -> Slope:
    """d log(average metric) / d log T from round `first` on, by least squares in every run."""
    fits = []
    for history in histories(runs):
        rounds, metric = np.array(history["round"]), np.array(history["metric"])
        kept = rounds[1:] >= first
        if kept.sum() < 2:
            raise ValueError(
                f"{kept.sum()} evaluations from round {first} on: a slope needs two; evaluate more "
                f"often, or begin earlier"
            )
        average = averages(rounds, metric, since)[kept]
        fits.append(np.polyfit(np.log(rounds[1:][kept]), np.log(average), 1)[0])
    mean, half = float(np.mean(fits)), float("nan")
    if len(fits) > 1:
        half = float(stats.t.ppf(0.975, len(fits) - 1) * np.std(fits, ddof=1) / np.sqrt(len(fits)))
    return Slope(mean, mean - half, mean + half)


def reached(history: Run | Mapping[str, Any], epsilon: float, along: str) -> float:
    """Rounds (or samples, ...) until the average metric falls to `epsilon`; infinite if never."""
    (history,) = histories(history)
    rounds, metric = np.array(history["round"]), np.array(history["metric"])
    below = np.flatnonzero(averages(rounds, metric) <= epsilon)
    return float(np.array(history[along])[1:][below[0]]) if below.size else float("inf")
