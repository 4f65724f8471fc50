"""Statistics of the outcomes: costs to a target, profiles, ranks, and failures.

The target of a case is that of More and Wild (2009),

    target = lowest + tau (start - lowest)

with `lowest` the smallest upper loss of any run on the case and `start` the median of the initial
ones. A run reaches the target at its first evaluation at or below it; its cost is the amount spent
by then. A run that never reaches the target has infinite cost. A method's cost is the median over
its seeds, so it is infinite if half of them or more do not reach the target.
"""

import math
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

TAU = 0.1
LEVEL = 0.95
Results = dict[str, Any]
Outcome = dict[str, Any]  # one run: seed, diverged, history


def targets(pairs: Sequence[Outcome], tau: float = TAU) -> dict[str, dict[str, float]]:
    """Return `start`, `lowest` and `target` of every case."""
    found: dict[str, dict[str, float]] = {}
    for case in dict.fromkeys(pair["case"] for pair in pairs):
        runs = [
            run["history"]["upper_loss"]
            for pair in pairs
            if pair["case"] == case
            for run in (*pair["tuned"], *pair["untuned"])
        ]
        start = float(np.nanmedian([losses[0] for losses in runs]))
        lowest = min(loss for losses in runs for loss in losses if math.isfinite(loss))
        found[case] = {"start": start, "lowest": lowest, "target": lowest + tau * (start - lowest)}
    return found


def cost(run: Outcome, target: float, name: str) -> float:
    """Return the cost of a run when it reaches the target; infinite if it never does."""
    return _spent(run, _arrival(run, target), name)


def _arrival(run: Outcome, target: float) -> int | None:
    """Return the evaluation at which a run reaches the target."""
    losses = run["history"]["upper_loss"]
    return next((i for i, loss in enumerate(losses) if loss <= target), None)


def _spent(run: Outcome, at: int | None, name: str) -> float:
    if name not in run["history"]:
        return math.nan
    return math.inf if at is None else float(run["history"][name][at])


def median(costs: Sequence[float]) -> float:
    """Return the median; of an even number, the larger of the two, which averages no infinity."""
    return sorted(costs)[len(costs) // 2]


def interval(costs: Sequence[float]) -> tuple[float, float]:
    """Return the percentile bootstrap interval of the median over the seeds."""
    low, high = _places(len(costs))
    return sorted(costs)[low], sorted(costs)[high]


@cache
def _places(n: int) -> tuple[int, int]:
    """Return the ranks of the two of n sorted costs that end the interval.

    The median of n draws is at most the k-th smallest cost if n // 2 + 1 draws or more are,

        P(k) = P(Binomial(n, k / n) > n // 2)

    so the limit over many resamples is known without drawing any.
    """
    share = stats.binom.sf(n // 2, n, np.arange(1, n + 1) / n)
    low, high = np.searchsorted(share, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return int(low), int(high)


def table(
    pairs: Sequence[Outcome], names: Sequence[str], tau: float = TAU, kind: str = "tuned"
) -> list[dict[str, Any]]:
    """Return a row per pair: number of seeds that reach the target, and their costs by `names`."""
    wanted, rows = targets(pairs, tau), []
    for pair in pairs:
        target = wanted[pair["case"]]["target"]
        arrivals = [(run, _arrival(run, target)) for run in pair[kind]]
        row = {"case": pair["case"], "method": pair["method"], "seeds": len(arrivals)}
        row["reached"] = sum(at is not None for _, at in arrivals)
        for name in names:
            costs = [_spent(run, at, name) for run, at in arrivals]
            row[name] = median(costs)
            row[f"{name}_low"], row[f"{name}_high"] = interval(costs)
        rows.append(row)
    return rows


def matrix(rows: Sequence[dict[str, Any]], name: str) -> tuple[list[str], list[str], NDArray[Any]]:
    """Return (cases, methods, costs): infinite if the target is not reached, nan without a run."""
    cases = list(dict.fromkeys(row["case"] for row in rows))
    methods = list(dict.fromkeys(row["method"] for row in rows))
    found = np.full((len(cases), len(methods)), np.nan)
    for row in rows:
        found[cases.index(row["case"]), methods.index(row["method"])] = row[name]
    return cases, methods, found


def profiles(costs: NDArray[Any], factors: Sequence[float]) -> NDArray[Any]:
    """Return (methods, factors): share of cases that a method solves within a factor of the best.

    Dolan and More (2002). Cases that no method solves count against all. If the best cost is 0, as
    the bytes of one agent, only equal methods are within a factor.
    """
    best = np.where(np.isnan(costs), np.inf, costs).min(1, keepdims=True)
    with np.errstate(invalid="ignore", divide="ignore"):
        ratio = np.where(costs == best, 1.0, costs / best)
    ratio = np.where(np.isfinite(costs), ratio, np.inf)
    made = ~np.isnan(costs)
    within = (ratio[:, :, None] <= np.asarray(factors)) & made[:, :, None]
    return within.sum(0) / np.maximum(made.sum(0), 1)[:, None]


def ranks(costs: NDArray[Any]) -> tuple[NDArray[Any], float]:
    """Return the shared-case rank of every method and the critical difference

        q_k sqrt(k (k + 1) / (6 n))

    beyond which two of k methods on n cases differ (Nemenyi; Demsar 2006). The shared-case rank is
    the average over the cases that all methods met. Equal costs, also infinite ones, share ranks.
    """
    met = costs[~np.isnan(costs).any(1)]
    n, k = met.shape
    if n == 0 or k < 2:
        return np.full(costs.shape[1], np.nan), math.nan
    average = stats.rankdata(met, axis=1).mean(0)
    return average, nemenyi(k) * math.sqrt(k * (k + 1) / (6 * n))


@cache
def nemenyi(k: int) -> float:
    """Return q_k: the 95 % quantile of the range of k normal variables, over sqrt(2)."""
    return float(stats.studentized_range.ppf(LEVEL, k, math.inf)) / math.sqrt(2)


def failures(pairs: Sequence[Outcome], tau: float = TAU) -> list[dict[str, Any]]:
    """List failures by kind: divergence, ending above the start, target not reached.

    `short` are the runs that missed the target without the other failures.
    """
    wanted, found = targets(pairs, tau), []
    for pair in pairs:
        at = wanted[pair["case"]]
        for kind in ("tuned", "untuned"):
            runs = pair[kind]
            ends = [run["history"]["upper_loss"][-1] for run in runs]
            diverged = [run["diverged"] is not None for run in runs]
            above = [not end <= at["start"] and not bad for end, bad in zip(ends, diverged)]
            missed = [not math.isfinite(cost(run, at["target"], "round")) for run in runs]
            short = [m and not a and not d for m, a, d in zip(missed, above, diverged)]
            if not any((*missed, *diverged, *above)):
                continue
            found.append(
                {
                    "case": pair["case"],
                    "method": pair["method"],
                    "kind": kind,
                    "seeds": len(runs),
                    "diverged": sum(diverged),
                    "above_start": sum(above),
                    "missed": sum(missed),
                    "short": sum(short),
                    "left": _left([end for end, bad in zip(ends, diverged) if not bad], at),
                }
            )
    return found


def _left(ended: Sequence[float], at: dict[str, float]) -> float:
    """Return the final gap: the median of the runs that finished."""
    return float(gap(np.median(ended), at)) if ended else math.nan


def gap(loss: Any, at: dict[str, float]) -> Any:
    """Return (loss - lowest) / (start - lowest): 1 at the start of a case, 0 at the lowest loss."""
    way = at["start"] - at["lowest"]
    return (np.asarray(loss, float) - at["lowest"]) / (way or math.nan)
