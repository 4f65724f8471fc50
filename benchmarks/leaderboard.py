"""The tables of docs/benchmark.md, from the results of `diamond bench`.

    python benchmarks/leaderboard.py bench/personal bench/common ...   results to docs/benchmark/
    python benchmarks/leaderboard.py                                   tables anew from there
    python benchmarks/leaderboard.py bench/personal --to elsewhere     results only, to a folder

What is kept of a suite: medians and intervals of the costs to the target, tuned numbers, failures.
"""

import argparse
import json
import math
import re
from pathlib import Path

from diamond.bench import results, statistics
from diamond.runs.strict_json import dumps

ROOT = Path(__file__).parents[1]
PAGE, KEPT = ROOT / "docs" / "benchmark.md", ROOT / "docs" / "benchmark"
COSTS = ("round", "samples", "calls", "bytes", "network_seconds")


def brief(found):
    """A suite without its runs."""
    names = [name for name in COSTS if name in results.costs(found)]
    few = lambda row: {k: float(f"{v:.4g}") if isinstance(v, float) else v for k, v in row.items()}
    kept = ("suite", "version", "machine", "settings", "seeds", "tuning_seeds", "cases", "methods")
    return {key: found[key] for key in kept} | {
        "tau": statistics.TAU,
        "targets": {case: few(at) for case, at in statistics.targets(found["pairs"]).items()},
        "costs": {
            kind: [few(row) for row in statistics.table(found["pairs"], names, kind=kind)]
            for kind in ("tuned", "untuned")
        },
        "numbers": [
            {"case": p["case"], "method": p["method"]}
            | {k: few({k: v})[k] for k, v in p["numbers"].items()}
            for p in found["pairs"]
        ],
        "failures": [few(row) for row in statistics.failures(found["pairs"])],
    }


def markdown(kept, cost="calls"):
    """Costs to the target: a row a method, a column a case, ordered by average rank."""
    cases, methods, medians = statistics.matrix(kept["costs"]["tuned"], cost)
    average, difference = statistics.ranks(medians)
    untuned = {(r["case"], r["method"]): r[cost] for r in kept["costs"]["untuned"]}
    best = [min((v for v in row if math.isfinite(v)), default=math.nan) for row in medians]
    said = lambda v, least: "" if math.isnan(v) else "-" if math.isinf(v) else bold(v, v == least)
    bold = lambda v, so: f"**{short(v)}**" if so else short(v)
    lines = [f"| method | {' | '.join(cases)} | rank | without tuning |"]
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
            f"Ranks that differ by less than {difference:.1f} do not differ (Nemenyi, 5 %).",
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

    def table(match):
        head, made = match[0].splitlines()[0], markdown(load(KEPT / f"{match[1]}.json"), match[2])
        return f"{head}\n{made}\n<!-- end -->"

    return re.sub(r"<!-- table (\S+) (\S+) -->.*?<!-- end -->", table, text, flags=re.S)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("folders", nargs="*", type=Path)
    parser.add_argument("--to", type=Path, default=KEPT)
    given = parser.parse_args()
    given.to.mkdir(parents=True, exist_ok=True)
    for folder in given.folders:
        found = results.load(folder)
        (given.to / f"{found['suite']}.json").write_text(dumps(brief(found)) + "\n")
    if given.to == KEPT:
        PAGE.write_text(tables(PAGE.read_text()))
