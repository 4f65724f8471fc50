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
CONFIDENCE = 0.95
Results = dict[str, Any]
Outcome = dict[str, Any]  # one run: seed, diverged, history


def compute_targets(pairs: Sequence[Outcome], tau: float = TAU) -> dict[str, dict[str, float]]:
    """Return `start`, `lowest` and `target` of every case."""
    levels: dict[str, dict[str, float]] = {}
    for case in dict.fromkeys(pair["case"] for pair in pairs):
        runs = [
            run["history"]["upper_loss"]
            for pair in pairs
            if pair["case"] == case
            for run in (*pair["tuned"], *pair["untuned"])
        ]
        start = float(np.nanmedian([losses[0] for losses in runs]))
        lowest = min(loss for losses in runs for loss in losses if math.isfinite(loss))
        levels[case] = {"start": start, "lowest": lowest, "target": lowest + tau * (start - lowest)}
    return levels


def cost_to_target(run: Outcome, target: float, name: str) -> float:
    """Return the cost of a run when it reaches the target; infinite if it never does."""
    return _cost_at(run, _arrival_index(run, target), name)


def _arrival_index(run: Outcome, target: float) -> int | None:
    """Return the evaluation at which a run reaches the target."""
    losses = run["history"]["upper_loss"]
    return next((i for i, loss in enumerate(losses) if loss <= target), None)


def _cost_at(run: Outcome, index: int | None, name: str) -> float:
    if name not in run["history"]:
        return math.nan
    return math.inf if index is None else float(run["history"][name][index])


def upper_median(costs: Sequence[float]) -> float:
    """Return the median; of an even number, the larger of the two, which averages no infinity."""
    return sorted(costs)[len(costs) // 2]


def median_interval(costs: Sequence[float]) -> tuple[float, float]:
    """Return the percentile bootstrap interval of the median over the seeds."""
    low, high = _interval_ranks(len(costs))
    return sorted(costs)[low], sorted(costs)[high]


@cache
def _interval_ranks(n: int) -> tuple[int, int]:
    """Return the ranks of the two of n sorted costs that end the interval.

    The median of n draws is at most the k-th smallest cost if n // 2 + 1 draws or more are,

        P(k) = P(Binomial(n, k / n) > n // 2)

    so the limit over many resamples is known without drawing any.
    """
    share = stats.binom.sf(n // 2, n, np.arange(1, n + 1) / n)
    low, high = np.searchsorted(share, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return int(low), int(high)


def cost_table(
    pairs: Sequence[Outcome], names: Sequence[str], tau: float = TAU, kind: str = "tuned"
) -> list[dict[str, Any]]:
    """Return a row per pair: number of seeds that reach the target, and their costs by `names`."""
    levels, rows = compute_targets(pairs, tau), []
    for pair in pairs:
        target = levels[pair["case"]]["target"]
        arrivals = [(run, _arrival_index(run, target)) for run in pair[kind]]
        row = {"case": pair["case"], "method": pair["method"], "seeds": len(arrivals)}
        row["reached"] = sum(index is not None for _, index in arrivals)
        for name in names:
            costs = [_cost_at(run, index, name) for run, index in arrivals]
            row[name] = upper_median(costs)
            row[f"{name}_low"], row[f"{name}_high"] = median_interval(costs)
        rows.append(row)
    return rows


def cost_matrix(
    rows: Sequence[dict[str, Any]], name: str
) -> tuple[list[str], list[str], NDArray[Any]]:
    """Return (cases, methods, costs): infinite if the target is not reached, nan without a run."""
    cases = list(dict.fromkeys(row["case"] for row in rows))
    methods = list(dict.fromkeys(row["method"] for row in rows))
    costs = np.full((len(cases), len(methods)), np.nan)
    for row in rows:
        costs[cases.index(row["case"]), methods.index(row["method"])] = row[name]
    return cases, methods, costs


def average_ranks(costs: NDArray[Any]) -> tuple[NDArray[Any], float]:
    """Return the shared-case rank of every method and the critical difference

        q_k sqrt(k (k + 1) / (6 n))

    beyond which two of k methods on n cases differ (Nemenyi; Demsar 2006). The shared-case rank is
    the average over the cases that all methods met. Equal costs, also infinite ones, share ranks.
    """
    shared = costs[~np.isnan(costs).any(1)]
    n, k = shared.shape
    if n == 0 or k < 2:
        return np.full(costs.shape[1], np.nan), math.nan
    average = stats.rankdata(shared, axis=1).mean(0)
    return average, nemenyi_quantile(k) * math.sqrt(k * (k + 1) / (6 * n))


@cache
def nemenyi_quantile(k: int) -> float:
    """Return q_k: the 95 % quantile of the range of k normal variables, over sqrt(2)."""
    return float(stats.studentized_range.ppf(CONFIDENCE, k, math.inf)) / math.sqrt(2)


def list_failures(pairs: Sequence[Outcome], tau: float = TAU) -> list[dict[str, Any]]:
    """List failures by kind: divergence, ending above the start, target not reached.

    `short` are the runs that missed the target without the other failures, `left` is the median gap
    of the runs that finished.
    """
    levels, failures = compute_targets(pairs, tau), []
    for pair in pairs:
        level = levels[pair["case"]]
        for kind in ("tuned", "untuned"):
            runs = pair[kind]
            ends = [run["history"]["upper_loss"][-1] for run in runs]
            diverged = [run["diverged"] is not None for run in runs]
            last = [end for end, has_diverged in zip(ends, diverged) if not has_diverged]
            is_above = [
                not end <= level["start"] and not has_diverged
                for end, has_diverged in zip(ends, diverged)
            ]
            has_missed = [
                not math.isfinite(cost_to_target(run, level["target"], "round")) for run in runs
            ]
            is_short = [m and not a and not d for m, a, d in zip(has_missed, is_above, diverged)]
            if not any((*has_missed, *diverged, *is_above)):
                continue
            failures.append(
                {
                    "case": pair["case"],
                    "method": pair["method"],
                    "kind": kind,
                    "seeds": len(runs),
                    "diverged": sum(diverged),
                    "above_start": sum(is_above),
                    "missed": sum(has_missed),
                    "short": sum(is_short),
                    "left": float(relative_gap(np.median(last), level)) if last else math.nan,
                }
            )
    return failures


def relative_gap(loss: Any, level: dict[str, float]) -> Any:
    """Return (loss - lowest) / (start - lowest): 1 at the start of a case, 0 at the lowest loss."""
    decrease = level["start"] - level["lowest"]
    return (np.asarray(loss, float) - level["lowest"]) / (decrease or math.nan)
