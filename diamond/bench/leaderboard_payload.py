"""Data of the benchmark page as one JSON-able dictionary.

A cost is `null` if the target is not reached, and absent if it was not counted.
"""

import math
from collections import defaultdict
from typing import Any

from ..records.plot_colors import assign_colours
from ..records.strict_json import replace_nonfinite
from .curves import gap_curve
from .run_suite import Pair
from .statistics import TAU, compute_targets, cost_table, list_failures, nemenyi_quantile
from .suite_results import Results, counted_costs

TAUS = (0.3, TAU, 0.03, 0.01)
RUN_KINDS = ("tuned", "untuned")
COST_TITLES = {
    "round": "rounds",
    "samples": "samples per agent",
    "calls": "gradients and products per agent, in rows",
    "bytes": "bytes sent by all agents",
    "seconds": "seconds of computing",
    "network_seconds": "seconds on the network's links",
}
# Methods that share a colour have different markers; dashes mark runs without tuning.
MARKERS = ("circle", "square", "diamond", "triangle-up", "cross", "star", "hexagon")


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
    for name, value in numbers.items():
        values = sorted({trial["numbers"][name] for trial in trials})
        if len(values) > 1 and value in (values[0], values[-1]):
            edges[name] = "smallest" if value == values[0] else "largest"
    return {
        "case": pair["case"],
        "method": pair["method"],
        "numbers": numbers,
        "tried": len(trials),
        "lost": sum(_trial_diverged(trial) for trial in trials),
        "edges": edges,
    }


def _trial_diverged(trial: dict[str, Any]) -> bool:
    """Return whether a setting diverged, in a short or a full run."""
    return not all(math.isfinite(trial[k]) for k in ("short", "upper_loss") if k in trial)
