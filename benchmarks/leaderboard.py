"""The tables of docs/results/benchmark.md, from the results of `diamond bench`.

    python benchmarks/leaderboard.py bench/personal bench/common ...   to docs/results/benchmark/
    python benchmarks/leaderboard.py                                   tables anew from there
    python benchmarks/leaderboard.py bench/personal --to elsewhere     results only, to a folder

What is kept of a suite: medians and intervals of the costs to the target, tuned numbers, failures.
"""

import argparse
import json
import math
import re
import sys
from pathlib import Path

from diamond.bench import statistics, suite_results
from diamond.records.strict_json import dumps

sys.path.insert(0, str(Path(__file__).parent))
import findings

ROOT = Path(__file__).parents[1]
ADVICE = ROOT / "diamond" / "advice" / "standings.json"
RESULTS = ROOT / "docs" / "results"
PAGE, KEPT = RESULTS / "benchmark.md", RESULTS / "benchmark"
COSTS = ("round", "samples", "calls", "bytes", "network_seconds")


def brief(found):
    """A suite without its runs."""
    names = [name for name in COSTS if name in suite_results.counted_costs(found)]
    few = lambda row: {k: float(f"{v:.4g}") if isinstance(v, float) else v for k, v in row.items()}
    kept = ("suite", "version", "machine", "settings", "seeds", "tuning_seeds", "cases", "methods")
    return {key: found[key] for key in kept} | {
        "tau": statistics.TAU,
        "targets": {
            case: few(at) for case, at in statistics.compute_targets(found["pairs"]).items()
        },
        "costs": {
            kind: [few(row) for row in statistics.cost_table(found["pairs"], names, kind=kind)]
            for kind in ("tuned", "untuned")
        },
        "numbers": [
            {"case": p["case"], "method": p["method"]}
            | {k: few({k: v})[k] for k, v in p["numbers"].items()}
            for p in found["pairs"]
        ],
        "failures": [few(row) for row in statistics.list_failures(found["pairs"])],
    }


def markdown(kept, cost="calls"):
    """Costs to the target: a row a method, a column a case, ordered by shared-case rank."""
    cases, methods, medians = statistics.cost_matrix(kept["costs"]["tuned"], cost)
    average, difference = statistics.average_ranks(medians)
    untuned = {(r["case"], r["method"]): r[cost] for r in kept["costs"]["untuned"]}
    best = [min((v for v in row if math.isfinite(v)), default=math.nan) for row in medians]
    said = lambda v, least: "" if math.isnan(v) else "-" if math.isinf(v) else bold(v, v == least)
    bold = lambda v, so: f"**{short(v)}**" if so else short(v)
    lines = [f"| method | {' | '.join(cases)} | shared-case rank | without tuning |"]
    lines.append(f"| --- |{' ---: |' * (len(cases) + 2)}")
    for j in sorted(range(len(methods)), key=lambda j: (math.isnan(average[j]), average[j])):
        cells = [said(medians[i, j], best[i]) for i in range(len(cases))]
        met = [case for i, case in enumerate(cases) if not math.isnan(medians[i, j])]
        alone = sum(math.isfinite(untuned[case, methods[j]]) for case in met)
        rank = "" if math.isnan(average[j]) else f"{average[j]:.1f}"
        lines.append(f"| {methods[j]} | {' | '.join(cells)} | {rank} | {alone} of {len(met)} |")
    if math.isfinite(difference):
        lines += [
            "",
            f"Differences of rank below {difference:.1f} are not significant (Nemenyi, 5 %).",
        ]
    return "\n".join(lines)


def short(value):
    """Three digits; thousands as k, millions as M."""
    for unit, size in (("M", 1e6), ("k", 1e3)):
        if value >= 0.9995 * size:
            return f"{value / size:.3g}{unit}"
    return f"{value:.3g}"


def load(path):
    """What `brief` left, with infinity where a target was not reached."""
    found = json.loads(path.read_text())
    for rows in found["costs"].values():
        for row in rows:
            row.update({key: math.inf for key, value in row.items() if value is None})
    return found


def tables(text):
    """`text` with every table between its marks made anew."""
    kept = everything()
    made = {
        "orderings": lambda: findings.orderings(kept),
        "worth": lambda: findings.worth(kept),
        "links": lambda: findings.links(kept),
        "which": lambda: findings.which(standings(kept)),
        "table": lambda suite, cost: markdown(kept[suite], cost),
    }

    def table(match):
        name, *given = match[1].split()
        return f"<!-- {match[1]} -->\n{made[name](*given)}\n<!-- end -->"

    kinds = "|".join(made)
    return re.sub(rf"<!-- ((?:{kinds})[^>]*?) -->.*?<!-- end -->", table, text, flags=re.S)


def everything():
    """What is kept of every suite."""
    return {path.stem: load(path) for path in sorted(KEPT.glob("*.json"))}


def standings(kept):
    """What `diamond advise` follows: the methods of every suite, best first."""
    return {name: findings.standings(kept[name]) for name in findings.SITUATIONS if name in kept}


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("folders", nargs="*", type=Path)
    parser.add_argument("--to", type=Path, default=KEPT)
    given = parser.parse_args()
    given.to.mkdir(parents=True, exist_ok=True)
    for folder in given.folders:
        found = suite_results.load_results(folder)
        (given.to / f"{found['suite']}.json").write_text(dumps(brief(found)) + "\n")
    if given.to == KEPT:
        ADVICE.write_text(dumps(standings(everything()), indent=1) + "\n")
        PAGE.write_text(tables(PAGE.read_text()))
