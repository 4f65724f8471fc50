"""Curves over the seeds: remaining gap against cost."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .statistics import Outcome, gap

DIGITS = 4  # sufficient for a screen


def curve(runs: Sequence[Outcome], at: dict[str, float], names: Sequence[str]) -> dict[str, Any]:
    """Return the gap at every evaluation (`middle`, `low`, `high`), and `cost` by name.

    `middle` is the median of all runs; a run that diverged has an infinite gap from then on. The
    range and the costs are those of the remaining runs. `lost` is the last point of each other run.
    """
    gaps = _rows([gap(run["history"]["upper_loss"], at) for run in runs])
    there = np.isfinite(gaps)
    counted = [name for name in names if all(name in run["history"] for run in runs)]
    spent = {name: _rows([run["history"][name] for run in runs]) for name in counted}
    ends = [(i, np.flatnonzero(there[i])[-1]) for i, run in enumerate(runs) if _lost(run, there[i])]
    return {
        "middle": _brief(np.sort(np.where(there, gaps, np.inf), 0)[len(runs) // 2]),
        "low": _brief(np.where(there, gaps, np.inf).min(0)),
        "high": _brief(np.where(there, gaps, -np.inf).max(0)),
        "cost": {name: _brief(_middle(each)) for name, each in spent.items()},
        "lost": [
            {"gap": float(gaps[end]), "cost": {name: spent[name][end] for name in counted}}
            for end in ends
        ],
    }


def _lost(run: Outcome, there: NDArray[Any]) -> bool:
    return run["diverged"] is not None and bool(there.any())


def _rows(found: Sequence[Sequence[float]]) -> NDArray[Any]:
    """Stack one row per run, padded to the longest."""
    rows = np.full((len(found), max(map(len, found))), np.nan)
    for row, values in zip(rows, found):
        row[: len(values)] = values
    return rows


def _middle(rows: NDArray[Any]) -> NDArray[Any]:
    return np.ma.median(np.ma.masked_invalid(rows), 0).filled(np.nan)


def _brief(values: NDArray[Any]) -> list[float]:
    return [float(f"{value:.{DIGITS}g}") for value in values]
