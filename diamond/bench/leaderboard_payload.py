"""Data of the benchmark page as one JSON-able dictionary.

A cost is `null` if the target is not reached, and absent if it was not counted.
"""

import math
from collections import defaultdict
from typing import Any

from ..records.plot_colors import assign_colours
from ..records.strict_json import replace_nonfinite
from .curves import curve
from .run_suite import Pair
from .statistics import TAU, failures, nemenyi, table, targets
from .suite_results import Results, costs

TAUS = (0.3, TAU, 0.03, 0.01)
KINDS = ("tuned", "untuned")
WORDS = {
    "round": "rounds",
    "samples": "samples per agent",
    "calls": "gradients and products per agent, in rows",
    "bytes": "bytes sent by all agents",
    "seconds": "seconds of computing",
    "network_seconds": "seconds on the network's links",
}
# Methods that share a colour have different markers; dashes mark runs without tuning.
MARKS = ("circle", "square", "diamond", "triangle-up", "cross", "star", "hexagon")


def payload(found: Results) -> dict[str, Any]:
    """Collect the data of the page from these results."""
    pairs, names = found["pairs"], costs(found)
    wanted = {tau: targets(pairs, tau) for tau in TAUS}
    met = [name for name in found["cases"] if name in wanted[TAU]]
    about = ("suite", "version", "machine", "settings", "seeds", "tuning_seeds")
    longer = lambda pair: sum("upper_loss" in trial for trial in pair["tried"])
    tried = sum(len(p["tried"]) + longer(p) * len(found["tuning_seeds"]) for p in pairs)
    made = {
        "title": f"Benchmark {found['suite']}",
        **{key: found[key] for key in about},
        "runs": tried + sum(len(pair[kind]) for pair in pairs for kind in KINDS),
        "costs": {name: WORDS[name] for name in names},
        "taus": [str(tau) for tau in TAUS],
        "tau": str(TAU),
        "cases": [_case(name, found["cases"][name], wanted) for name in met],
        "methods": _methods(found["methods"]),
        "nemenyi": {str(k): nemenyi(k) for k in range(2, len(found["methods"]) + 1)},
        "table": {
            str(tau): {kind: _rows(pairs, names, tau, kind) for kind in KINDS} for tau in TAUS
        },
        "failures": {str(tau): failures(pairs, tau) for tau in TAUS},
        "constants": [_constants(pair) for pair in pairs],
        "curves": [
            {"case": pair["case"], "method": pair["method"]}
            | {kind: curve(pair[kind], wanted[TAU][pair["case"]], names) for kind in KINDS}
            for pair in pairs
        ],
    }
    strict: dict[str, Any] = replace_nonfinite(made)
    return strict


def _case(name: str, about: dict[str, Any], wanted: dict[float, Any]) -> dict[str, Any]:
    at = wanted[TAU][name]
    targets = {str(tau): wanted[tau][name]["target"] for tau in TAUS}
    return {"name": name, **about, "start": at["start"], "lowest": at["lowest"], "targets": targets}


def _methods(described: dict[str, dict[str, str]]) -> list[dict[str, str]]:
    shades, used = assign_colours(described), defaultdict[str, int](int)
    methods = []
    for name, about in described.items():
        mark = MARKS[used[shades[name]] % len(MARKS)]
        used[shades[name]] += 1
        methods.append({"name": name, "colour": shades[name], "mark": mark, **about})
    return methods


def _rows(pairs: list[Pair], names: list[str], tau: float, kind: str) -> list[dict[str, Any]]:
    """Return `statistics.table` with median, low and high of every counted cost."""
    return [
        {key: row[key] for key in ("case", "method", "seeds", "reached")}
        | {
            "cost": {
                name: [row[name], row[f"{name}_low"], row[f"{name}_high"]]
                for name in names
                if not math.isnan(row[name])
            }
        }
        for row in table(pairs, names, tau, kind)
    ]


def _constants(pair: Pair) -> dict[str, Any]:
    """Return the best constants, and whether a wider grid might find better ones."""
    tried, numbers, edges = pair["tried"], pair["numbers"], {}
    for name, value in numbers.items():
        values = sorted({trial["numbers"][name] for trial in tried})
        if len(values) > 1 and value in (values[0], values[-1]):
            edges[name] = "smallest" if value == values[0] else "largest"
    return {
        "case": pair["case"],
        "method": pair["method"],
        "numbers": numbers,
        "tried": len(tried),
        "lost": sum(_lost(trial) for trial in tried),
        "edges": edges,
    }


def _lost(trial: dict[str, Any]) -> bool:
    """Return whether a setting diverged, in a short or a full run."""
    return not all(math.isfinite(trial[k]) for k in ("short", "upper_loss") if k in trial)
