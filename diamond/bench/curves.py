"""Curves over the seeds: remaining gap against cost."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .statistics import Outcome, relative_gap

DIGITS = 4  # sufficient for a screen


def gap_curve(
    runs: Sequence[Outcome], levels: dict[str, float], cost_names: Sequence[str]
) -> dict[str, Any]:
    """Return the gap at every evaluation (`middle`, `low`, `high`), and `cost` by name.

    `middle` is the median of all runs; a run that diverged has an infinite gap from then on. The
    range and the costs are those of the remaining runs. `lost` is the last point of each other run.
    """
    gaps = _stack_padded([relative_gap(run["history"]["upper_loss"], levels) for run in runs])
    valid = np.isfinite(gaps)
    counted_names = [name for name in cost_names if all(name in run["history"] for run in runs)]
    costs = {name: _stack_padded([run["history"][name] for run in runs]) for name in counted_names}
    ends = [
        (i, np.flatnonzero(valid[i])[-1])
        for i, run in enumerate(runs)
        if _has_diverged(run, valid[i])
    ]
    return {
        "middle": _round_values(np.sort(np.where(valid, gaps, np.inf), 0)[len(runs) // 2]),
        "low": _round_values(np.where(valid, gaps, np.inf).min(0)),
        "high": _round_values(np.where(valid, gaps, -np.inf).max(0)),
        "cost": {name: _round_values(_median_of_valid(values)) for name, values in costs.items()},
        "lost": [
            {"gap": float(gaps[end]), "cost": {name: costs[name][end] for name in counted_names}}
            for end in ends
        ],
    }


def _has_diverged(run: Outcome, valid: NDArray[Any]) -> bool:
    return run["diverged"] is not None and bool(valid.any())


def _stack_padded(columns: Sequence[Sequence[float]]) -> NDArray[Any]:
    """Stack one row per run, padded to the longest."""
    rows = np.full((len(columns), max(map(len, columns))), np.nan)
    for row, values in zip(rows, columns):
        row[: len(values)] = values
    return rows


def _median_of_valid(rows: NDArray[Any]) -> NDArray[Any]:
    return np.ma.median(np.ma.masked_invalid(rows), 0).filled(np.nan)


def _round_values(values: NDArray[Any]) -> list[float]:
    return [float(f"{value:.{DIGITS}g}") for value in values]
