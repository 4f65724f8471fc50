"""Results of a suite: a file of numbers, tables in CSV and LaTeX, and a page."""

import json
import math
import platform
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .. import catalogue
from .._version import __version__
from ..records import result_table
from ..records.checkpoint_file import replace_file
from ..records.strict_json import dumps, restore_nan
from .costs import COSTS
from .run_suite import Pair
from .statistics import TAU, average_ranks, cost_matrix, cost_table
from .suites import FIRST_TUNING_SEED, Suite

RESULTS, COST_COLUMNS = "results.json", ("round", *COSTS)
Results = dict[str, Any]


def collect_results(suite: Suite, pairs: Sequence[Pair], processes: int) -> Results:
    """Collect the data of the page and the tables."""
    import jax

    used = dict.fromkeys(pair["method"] for pair in pairs)
    return {
        "suite": suite.name,
        "version": __version__,
        "machine": {
            "processor": platform.machine(),
            "device": jax.devices()[0].device_kind,
            "processes": processes,
            "jax": jax.__version__,
        },
        "settings": suite.settings,
        "seeds": list(range(suite.seeds)),
        "tuning_seeds": list(range(FIRST_TUNING_SEED, FIRST_TUNING_SEED + suite.tuning_seeds)),
        "cases": {
            case.name: {
                "title": case.title,
                "rounds": case.rounds,
                "batch": case.batch,
                "topology": case.topology,
                "lower_level": case.level,
            }
            for case in suite.cases
        },
        "methods": {name: _describe_method(name) for name in used},
        "pairs": list(pairs),
    }


def _describe_method(name: str) -> dict[str, str]:
    row = catalogue.describe_method(name)
    return {
        "solves": row.solves,
        "oracle": row.directions,
        "estimator": row.estimator,
        "moves": row.moves,
        "networks": row.networks,
        "reference": row.reference,
    }


def write_results(folder: Path, results: Results) -> Path:
    """Write the numbers as `results.json` and the costs to the target as `costs.csv`."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / RESULTS
    replace_file(path, dumps(results).encode())
    replace_file(folder / "costs.csv", format_csv(results).encode())
    return path


def load_results(path: Path) -> Results:
    """Load the output of `write_results` from its folder or file."""
    path = path / RESULTS if path.is_dir() else path
    try:
        results = json.loads(path.read_text(encoding="utf-8"))
    except json.JSONDecodeError as cause:
        raise ValueError(f"{path} is not a file of results: {cause}") from None
    if not isinstance(results, dict) or "pairs" not in results:
        raise ValueError(f"{path} is not a file of results: it has no `pairs`")
    for pair in results["pairs"]:
        for run in (*pair["tuned"], *pair["untuned"]):
            run["history"] = restore_nan(run["history"])
        for trial in pair["tried"]:  # null means diverged, absent means not run
            loss_keys = ("short", "upper_loss")
            trial |= {
                k: math.inf if trial[k] is None else trial[k] for k in loss_keys if k in trial
            }
    return results


def counted_costs(results: Results) -> list[str]:
    """List the costs that were counted on at least one case."""
    counted = {name for pair in results["pairs"] for name in pair["tuned"][0]["history"]}
    return [name for name in COST_COLUMNS if name in counted]


def format_csv(results: Results, tau: float = TAU) -> str:
    """Format one line per case and method, tuned and untuned, as CSV."""
    names = counted_costs(results)
    return result_table.format_csv(
        [
            {"kind": kind} | row
            for kind in ("tuned", "untuned")
            for row in cost_table(results["pairs"], names, tau, kind)
        ]
    )


def format_latex(results: Results, cost: str = "calls", tau: float = TAU) -> str:
    """Format costs to the target as a LaTeX tabular: one row per method, one column per case."""
    rows = cost_table(results["pairs"], [cost], tau)
    cases, methods, medians = cost_matrix(rows, cost)
    mean_ranks, _ = average_ranks(medians)
    best = [min((v for v in column if math.isfinite(v)), default=math.nan) for column in medians]

    def cell(value: float, best_value: float) -> str:
        if math.isnan(value):
            return ""
        if math.isinf(value):
            return "--"
        text = f"{value:.3g}"
        if "e" in text:
            digits, power = text.split("e")
            text = f"{digits} \\cdot 10^{{{int(power)}}}"
        return f"$\\mathbf{{{text}}}$" if value == best_value else f"${text}$"

    names = [name.replace("_", "\\_") for name in methods]
    lines = [f"\\begin{{tabular}}{{l{'r' * len(cases)}r}}", "\\toprule"]
    lines += [" & ".join(["", *cases, "shared-case rank"]) + r" \\", "\\midrule"]
    for j, name in enumerate(names):
        cells = [cell(medians[i, j], best[i]) for i in range(len(cases))]
        rank = "" if math.isnan(mean_ranks[j]) else f"{mean_ranks[j]:.1f}"
        lines.append(" & ".join([name, *cells, rank]) + r" \\")
    return "\n".join([*lines, "\\bottomrule", "\\end{tabular}", ""])


def summarize_methods(
    results: Results, cost: str = "calls", tau: float = TAU
) -> list[dict[str, Any]]:
    """Return one row per method: cases solved, tuned and untuned, and its shared-case rank."""
    rows = {kind: cost_table(results["pairs"], [cost], tau, kind) for kind in ("tuned", "untuned")}
    _, methods, medians = cost_matrix(rows["tuned"], cost)
    mean_ranks, _ = average_ranks(medians)
    count_solved = lambda kind, name: sum(
        math.isfinite(row[cost]) for row in rows[kind] if row["method"] == name
    )
    count_cases = lambda name: sum(row["method"] == name for row in rows["tuned"])
    rows_by_method = [
        {
            "method": name,
            "solved": f"{count_solved('tuned', name)} of {count_cases(name)}",
            "untuned": f"{count_solved('untuned', name)} of {count_cases(name)}",
            "rank": float(mean_ranks[j]),
        }
        for j, name in enumerate(methods)
    ]
    return sorted(rows_by_method, key=lambda row: (math.isnan(row["rank"]), row["rank"]))
