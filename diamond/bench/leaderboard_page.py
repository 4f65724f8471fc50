"""Page of a benchmark: its numbers and charts in one offline file.

In the data of the page, a cost is `null` if the target is not reached, and absent if it was not
counted.
"""

import math
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..records.plot_colors import assign_colours
from ..records.strict_json import replace_nonfinite
from ..report.report_page import SHARED_SCRIPTS, STYLE, fill_template, read_asset, write_page
from .costs import COST_TITLES
from .run_suite import Pair
from .statistics import (
    TAU,
    Outcome,
    compute_targets,
    cost_table,
    list_failures,
    nemenyi_quantile,
    relative_gap,
)
from .suite_results import Results, counted_costs

HERE = Path(__file__).parent / "page"
LEADERBOARD_SCRIPT_NAMES = (
    "state standings about costs profile ranks curves constants untuned failures main".split()
)
SCRIPTS = [*SHARED_SCRIPTS, *(HERE / f"{name}.js" for name in LEADERBOARD_SCRIPT_NAMES)]
DIGITS = 4  # of the numbers of curves, sufficient for a screen
TAUS = (0.3, TAU, 0.03, 0.01)
RUN_KINDS = ("tuned", "untuned")
# Methods that share a colour have different markers; dashes mark runs without tuning.
MARKERS = ("circle", "square", "diamond", "triangle-up", "cross", "star", "hexagon")


def build_leaderboard(results: Results, out: Path) -> Path:
    """Write the page, in the style of reports, as one HTML file without external requests."""
    parts = {"style": read_asset(STYLE) + read_asset(HERE / "bench.css")}
    data = collect_leaderboard_data(results)
    return write_page(fill_template(HERE / "bench.html", data, SCRIPTS, parts), Path(out))


def collect_leaderboard_data(results: Results) -> dict[str, Any]:
    """Collect the data of the page from these results."""
    pairs, names = results["pairs"], counted_costs(results)
    levels = {tau: compute_targets(pairs, tau) for tau in TAUS}
    measured_cases = [name for name in results["cases"] if name in levels[TAU]]
    copied_keys = ("suite", "version", "machine", "settings", "seeds", "tuning_seeds")
    count_full_trials = lambda pair: sum("upper_loss" in trial for trial in pair["tried"])
    trials = sum(
        len(p["tried"]) + count_full_trials(p) * len(results["tuning_seeds"]) for p in pairs
    )
    data = {
        "title": f"Benchmark {results['suite']}",
        **{key: results[key] for key in copied_keys},
        "runs": trials + sum(len(pair[kind]) for pair in pairs for kind in RUN_KINDS),
        "costs": {name: COST_TITLES[name] for name in names},
        "taus": [str(tau) for tau in TAUS],
        "tau": str(TAU),
        "cases": [_describe_case(name, results["cases"][name], levels) for name in measured_cases],
        "methods": _describe_methods(results["methods"]),
        "nemenyi": {str(k): nemenyi_quantile(k) for k in range(2, len(results["methods"]) + 1)},
        "table": {
            str(tau): {kind: _cost_rows(pairs, names, tau, kind) for kind in RUN_KINDS}
            for tau in TAUS
        },
        "failures": {str(tau): list_failures(pairs, tau) for tau in TAUS},
        "constants": [_describe_constants(pair) for pair in pairs],
        "curves": [
            {"case": pair["case"], "method": pair["method"]}
            | {kind: gap_curve(pair[kind], levels[TAU][pair["case"]], names) for kind in RUN_KINDS}
            for pair in pairs
        ],
    }
    strict: dict[str, Any] = replace_nonfinite(data)
    return strict


def _describe_case(
    name: str, description: dict[str, Any], levels: dict[float, Any]
) -> dict[str, Any]:
    level = levels[TAU][name]
    targets = {str(tau): levels[tau][name]["target"] for tau in TAUS}
    return {
        "name": name,
        **description,
        "start": level["start"],
        "lowest": level["lowest"],
        "targets": targets,
    }


def _describe_methods(descriptions: dict[str, dict[str, str]]) -> list[dict[str, str]]:
    colours, uses = assign_colours(descriptions), defaultdict[str, int](int)
    methods = []
    for name, description in descriptions.items():
        marker = MARKERS[uses[colours[name]] % len(MARKERS)]
        uses[colours[name]] += 1
        methods.append({"name": name, "colour": colours[name], "mark": marker, **description})
    return methods


def _cost_rows(pairs: list[Pair], names: list[str], tau: float, kind: str) -> list[dict[str, Any]]:
    """Return `statistics.cost_table` with median, low and high of every counted cost."""
    return [
        {key: row[key] for key in ("case", "method", "seeds", "reached")}
        | {
            "cost": {
                name: [row[name], row[f"{name}_low"], row[f"{name}_high"]]
                for name in names
                if not math.isnan(row[name])
            }
        }
        for row in cost_table(pairs, names, tau, kind)
    ]


def _describe_constants(pair: Pair) -> dict[str, Any]:
    """Return the best constants, and whether a wider grid might find better ones."""
    trials, numbers, edges = pair["tried"], pair["numbers"], {}
    has_diverged = lambda trial: (
        not all(  # in a short or a full run
            math.isfinite(trial[k]) for k in ("short", "upper_loss") if k in trial
        )
    )
    for name, value in numbers.items():
        values = sorted({trial["numbers"][name] for trial in trials})
        if len(values) > 1 and value in (values[0], values[-1]):
            edges[name] = "smallest" if value == values[0] else "largest"
    return {
        "case": pair["case"],
        "method": pair["method"],
        "numbers": numbers,
        "tried": len(trials),
        "lost": sum(has_diverged(trial) for trial in trials),
        "edges": edges,
    }


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
    median_of_valid = lambda rows: np.ma.median(np.ma.masked_invalid(rows), 0).filled(np.nan)
    ends = [
        (i, np.flatnonzero(valid[i])[-1])
        for i, run in enumerate(runs)
        if run["diverged"] is not None and valid[i].any()
    ]
    return {
        "middle": _round_values(np.sort(np.where(valid, gaps, np.inf), 0)[len(runs) // 2]),
        "low": _round_values(np.where(valid, gaps, np.inf).min(0)),
        "high": _round_values(np.where(valid, gaps, -np.inf).max(0)),
        "cost": {name: _round_values(median_of_valid(values)) for name, values in costs.items()},
        "lost": [
            {"gap": float(gaps[end]), "cost": {name: costs[name][end] for name in counted_names}}
            for end in ends
        ],
    }


def _stack_padded(columns: Sequence[Sequence[float]]) -> NDArray[Any]:
    """Stack one row per run, padded to the longest."""
    rows = np.full((len(columns), max(map(len, columns))), np.nan)
    for row, values in zip(rows, columns):
        row[: len(values)] = values
    return rows


def _round_values(values: NDArray[Any]) -> list[float]:
    return [float(f"{value:.{DIGITS}g}") for value in values]
