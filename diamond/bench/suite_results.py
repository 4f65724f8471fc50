"""Results of a suite: a file of numbers, tables in CSV and LaTeX, and a page."""

import csv
import io
import json
import math
import platform
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .. import catalogue
from .._version import __version__
from ..records.strict_json import dumps, restore_nan
from .run_suite import COSTS, Pair
from .statistics import TAU, matrix, ranks, table
from .suites import TUNING, Suite

RESULTS, SHOWN = "results.json", ("round", *COSTS)
Results = dict[str, Any]


def results(suite: Suite, pairs: Sequence[Pair], processes: int) -> Results:
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
        "tuning_seeds": list(range(TUNING, TUNING + suite.tuning_seeds)),
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
        "methods": {name: _described(name) for name in used},
        "pairs": list(pairs),
    }


def _described(name: str) -> dict[str, str]:
    found = catalogue.describe_method(name)
    return {
        "solves": found.solves,
        "oracle": found.directions,
        "estimator": found.estimator,
        "moves": found.moves,
        "networks": found.networks,
        "reference": found.reference,
    }


def write(folder: Path, found: Results) -> Path:
    """Write the numbers as `results.json` and the costs to the target as `costs.csv`."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / RESULTS
    for name, text in {RESULTS: dumps(found), "costs.csv": as_csv(found)}.items():
        draft = folder / f"{name}.tmp"
        draft.write_text(text, encoding="utf-8")
        draft.replace(folder / name)
    return path


def load(path: Path) -> Results:
    """Load the output of `write` from its folder or file."""
    path = path / RESULTS if path.is_dir() else path
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except json.JSONDecodeError as cause:
        raise ValueError(f"{path} is not a file of results: {cause}") from None
    if not isinstance(found, dict) or "pairs" not in found:
        raise ValueError(f"{path} is not a file of results: it has no `pairs`")
    for pair in found["pairs"]:
        for run in (*pair["tuned"], *pair["untuned"]):
            run["history"] = restore_nan(run["history"])
        for tried in pair["tried"]:  # null means diverged, absent means not run
            made = ("short", "upper_loss")
            tried |= {k: math.inf if tried[k] is None else tried[k] for k in made if k in tried}
    return found


def costs(found: Results) -> list[str]:
    """List the costs that were counted on at least one case."""
    counted = {name for pair in found["pairs"] for name in pair["tuned"][0]["history"]}
    return [name for name in SHOWN if name in counted]


def as_csv(found: Results, tau: float = TAU) -> str:
    """Format one line per case and method, tuned and untuned, as CSV."""
    out, names = io.StringIO(), costs(found)
    rows = [
        {"kind": kind} | row
        for kind in ("tuned", "untuned")
        for row in table(found["pairs"], names, tau, kind)
    ]
    writer = csv.DictWriter(out, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


def as_latex(found: Results, cost: str = "calls", tau: float = TAU) -> str:
    """Format costs to the target as a LaTeX tabular: one row per method, one column per case."""
    rows = table(found["pairs"], [cost], tau)
    cases, methods, medians = matrix(rows, cost)
    average, _ = ranks(medians)
    best = [min((v for v in column if math.isfinite(v)), default=math.nan) for column in medians]

    def cell(value: float, least: float) -> str:
        if math.isnan(value):
            return ""
        if math.isinf(value):
            return "--"
        said = f"{value:.3g}"
        if "e" in said:
            digits, power = said.split("e")
            said = f"{digits} \\cdot 10^{{{int(power)}}}"
        return f"$\\mathbf{{{said}}}$" if value == least else f"${said}$"

    names = [name.replace("_", "\\_") for name in methods]
    lines = [f"\\begin{{tabular}}{{l{'r' * len(cases)}r}}", "\\toprule"]
    lines += [" & ".join(["", *cases, "shared-case rank"]) + r" \\", "\\midrule"]
    for j, name in enumerate(names):
        cells = [cell(medians[i, j], best[i]) for i in range(len(cases))]
        rank = "" if math.isnan(average[j]) else f"{average[j]:.1f}"
        lines.append(" & ".join([name, *cells, rank]) + r" \\")
    return "\n".join([*lines, "\\bottomrule", "\\end{tabular}", ""])


def summary(found: Results, cost: str = "calls", tau: float = TAU) -> list[dict[str, Any]]:
    """Return one row per method: cases solved, tuned and untuned, and its shared-case rank."""
    rows = {kind: table(found["pairs"], [cost], tau, kind) for kind in ("tuned", "untuned")}
    _, methods, medians = matrix(rows["tuned"], cost)
    average, _ = ranks(medians)
    solved = lambda kind, name: sum(
        math.isfinite(row[cost]) for row in rows[kind] if row["method"] == name
    )
    met = lambda name: sum(row["method"] == name for row in rows["tuned"])
    said = [
        {
            "method": name,
            "solved": f"{solved('tuned', name)} of {met(name)}",
            "untuned": f"{solved('untuned', name)} of {met(name)}",
            "rank": float(average[j]),
        }
        for j, name in enumerate(methods)
    ]
    return sorted(said, key=lambda row: (math.isnan(row["rank"]), row["rank"]))
