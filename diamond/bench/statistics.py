"""What the outcomes say: costs to a target, profiles, ranks, and failures.

The target of a case is that of More and Wild (2009),

    target = lowest + tau (start - lowest)

`lowest` the smallest upper loss of any run on the case, `start` the median of the first ones. A
run has reached it at its first evaluation at or below the target, and what it has spent by then is
its cost; one that never does, or diverges before, has the cost infinity. A method's cost is the
median over its seeds, so it is infinite where half of them or more do not reach the target.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

TAU = 0.1
RESAMPLES, LEVEL = 1000, 0.95
Results = dict[str, Any]
Outcome = dict[str, Any]  # of one run: seed, diverged, history


def targets(pairs: Sequence[Outcome], tau: float = TAU) -> dict[str, dict[str, float]]:
    """`start`, `lowest` and `target` of every case."""
    found: dict[str, dict[str, float]] = {}
    for case in dict.fromkeys(pair["case"] for pair in pairs):
        runs = [
            run["history"]["upper_loss"]
            for pair in pairs
            if pair["case"] == case
            for run in (*pair["tuned"], *pair["untuned"])
        ]
        start = float(np.median([losses[0] for losses in runs]))
        lowest = float(np.nanmin([np.nanmin(losses) for losses in runs]))
        found[case] = {"start": start, "lowest": lowest, "target": lowest + tau * (start - lowest)}
    return found


def cost(run: Outcome, target: float, name: str) -> float:
    """What a run had spent when it reached the target; infinite if it never did."""
    history = run["history"]
    if name not in history:
        return math.nan
    reached = np.flatnonzero(np.asarray(history["upper_loss"], float) <= target)
    return float(history[name][reached[0]]) if len(reached) else math.inf


def median(costs: Sequence[float]) -> float:
    """The middle one; of an even number, the larger of the two: never between finite and not."""
    return sorted(costs)[len(costs) // 2]


def interval(costs: Sequence[float], seed: int = 0) -> tuple[float, float]:
    """Of the median, by the percentile bootstrap over the seeds."""
    drawn = np.random.default_rng(seed).integers(0, len(costs), (RESAMPLES, len(costs)))
    medians = np.sort(np.array(costs)[drawn], 1)[:, len(costs) // 2]
    low, high = np.sort(medians)[
        [int((1 - LEVEL) / 2 * RESAMPLES), int((1 + LEVEL) / 2 * RESAMPLES)]
    ]
    return float(low), float(high)


def table(
    pairs: Sequence[Outcome], names: Sequence[str], tau: float = TAU, kind: str = "tuned"
) -> list[dict[str, Any]]:
    """A row for every pair: how many seeds reach the target, and what that costs by `names`."""
    wanted, rows = targets(pairs, tau), []
    for pair in pairs:
        target = wanted[pair["case"]]["target"]
        row = {"case": pair["case"], "method": pair["method"], "seeds": len(pair[kind])}
        row["reached"] = sum(math.isfinite(cost(run, target, "round")) for run in pair[kind])
        for name in names:
            costs = [cost(run, target, name) for run in pair[kind]]
            row[name] = median(costs)
            row[f"{name}_low"], row[f"{name}_high"] = interval(costs)
        rows.append(row)
    return rows


def matrix(rows: Sequence[dict[str, Any]], name: str) -> tuple[list[str], list[str], NDArray[Any]]:
    """(cases, methods, costs): infinite where the target is not reached, nan for no run."""
    cases = list(dict.fromkeys(row["case"] for row in rows))
    methods = list(dict.fromkeys(row["method"] for row in rows))
    found = np.full((len(cases), len(methods)), np.nan)
    for row in rows:
        found[cases.index(row["case"]), methods.index(row["method"])] = row[name]
    return cases, methods, found


def profiles(costs: NDArray[Any], factors: Sequence[float]) -> NDArray[Any]:
    """(methods, factors): the share of its cases that a method solves within a factor of the best.

    Dolan and More (2002). Cases that no method solves count against all.
    """
    best = np.nanmin(np.where(np.isnan(costs), np.inf, costs), 1, keepdims=True)
    with np.errstate(invalid="ignore"):
        ratio = np.where(np.isfinite(costs), costs / best, np.inf)
    made = ~np.isnan(costs)
    within = (ratio[:, :, None] <= np.asarray(factors)) & made[:, :, None]
    return within.sum(0) / np.maximum(made.sum(0), 1)[:, None]


def ranks(costs: NDArray[Any]) -> tuple[NDArray[Any], float]:
    """The average rank of every method over the cases that all of them met, and the difference

        q_0.05 sqrt(k (k + 1) / (6 n))

    from which two of k methods on n cases differ (Nemenyi; Demsar 2006). Equal costs, infinite
    ones among them, share their ranks.
    """
    met = costs[~np.isnan(costs).any(1)]
    n, k = met.shape
    if n == 0 or k < 2:
        return np.full(costs.shape[1], np.nan), math.nan
    average = stats.rankdata(met, axis=1).mean(0)
    q = stats.studentized_range.ppf(0.95, k, math.inf) / math.sqrt(2)
    return average, float(q * math.sqrt(k * (k + 1) / (6 * n)))


def failures(pairs: Sequence[Outcome], tau: float = TAU) -> list[dict[str, Any]]:
    """Where methods fail, and how: divergence, ending above the start, the target not reached."""
    wanted, found = targets(pairs, tau), []
    for pair in pairs:
        at = wanted[pair["case"]]
        for kind in ("tuned", "untuned"):
            runs = pair[kind]
            diverged = [run for run in runs if run["diverged"] is not None]
            ended = [run["history"]["upper_loss"][-1] for run in runs if run["diverged"] is None]
            above = sum(not loss <= at["start"] for loss in ended)
            missed = sum(not math.isfinite(cost(run, at["target"], "round")) for run in runs)
            if not missed and not diverged and not above:
                continue
            found.append(
                {
                    "case": pair["case"],
                    "method": pair["method"],
                    "kind": kind,
                    "seeds": len(runs),
                    "diverged": len(diverged),
                    "above_start": above,
                    "missed": missed,
                    "left": _left(ended, at),
                }
            )
    return found


def _left(ended: Sequence[float], at: dict[str, float]) -> float:
    """(loss - lowest) / (start - lowest) at the end: the median of the runs that got there."""
    if not ended or at["start"] == at["lowest"]:
        return math.nan
    return (float(np.median(ended)) - at["lowest"]) / (at["start"] - at["lowest"])
