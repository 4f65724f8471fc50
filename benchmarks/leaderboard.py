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
PAGE, STORED = RESULTS / "benchmark.md", RESULTS / "benchmark"
COSTS = ("round", "samples", "calls", "bytes", "network_seconds")


def summarize(results):
    """A suite without its runs."""
    names = [name for name in COSTS if name in suite_results.counted_costs(results)]
    round_numbers = lambda row: {
        k: float(f"{v:.4g}") if isinstance(v, float) else v for k, v in row.items()
    }
    keys = ("suite", "version", "machine", "settings", "seeds", "tuning_seeds", "cases", "methods")
    return {key: results[key] for key in keys} | {
        "tau": statistics.TAU,
        "targets": {
            case: round_numbers(target)
            for case, target in statistics.compute_targets(results["pairs"]).items()
        },
        "costs": {
            kind: [
                round_numbers(row)
                for row in statistics.cost_table(results["pairs"], names, kind=kind)
            ]
            for kind in ("tuned", "untuned")
        },
        "numbers": [
            {"case": p["case"], "method": p["method"]}
            | {k: round_numbers({k: v})[k] for k, v in p["numbers"].items()}
            for p in results["pairs"]
        ],
        "failures": [round_numbers(row) for row in statistics.list_failures(results["pairs"])],
    }


def cost_table_markdown(results, cost="calls"):
    """Costs to the target: a row a method, a column a case, ordered by shared-case rank."""
    cases, methods, medians = statistics.cost_matrix(results["costs"]["tuned"], cost)
    average, difference = statistics.average_ranks(medians)
    untuned = {(r["case"], r["method"]): r[cost] for r in results["costs"]["untuned"]}
    best = [min((v for v in row if math.isfinite(v)), default=math.nan) for row in medians]
    format_cell = lambda v, best_value: (
        "" if math.isnan(v) else "-" if math.isinf(v) else bold(v, v == best_value)
    )
    bold = lambda v, is_best: f"**{short(v)}**" if is_best else short(v)
    lines = [f"| method | {' | '.join(cases)} | shared-case rank | without tuning |"]
    lines.append(f"| --- |{' ---: |' * (len(cases) + 2)}")
    for j in sorted(range(len(methods)), key=lambda j: (math.isnan(average[j]), average[j])):
        cells = [format_cell(medians[i, j], best[i]) for i in range(len(cases))]
        met = [case for i, case in enumerate(cases) if not math.isnan(medians[i, j])]
        untuned_count = sum(math.isfinite(untuned[case, methods[j]]) for case in met)
        rank = "" if math.isnan(average[j]) else f"{average[j]:.1f}"
        lines.append(
            f"| {methods[j]} | {' | '.join(cells)} | {rank} | {untuned_count} of {len(met)} |"
        )
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
    results = json.loads(path.read_text())
    for rows in results["costs"].values():
        for row in rows:
            row.update({key: math.inf for key, value in row.items() if value is None})
    return results


def fill_tables(text):
    """`text` with every table between its marks made anew."""
    suites = load_suites()
    makers = {
        "orderings": lambda: findings.orderings_table(suites),
        "worth": lambda: findings.parts_table(suites),
        "links": lambda: findings.links_table(suites),
        "which": lambda: findings.choice_table(standings(suites)),
        "table": lambda suite, cost: cost_table_markdown(suites[suite], cost),
    }

    def table(match):
        name, *arguments = match[1].split()
        return f"<!-- {match[1]} -->\n{makers[name](*arguments)}\n<!-- end -->"

    kinds = "|".join(makers)
    return re.sub(rf"<!-- ((?:{kinds})[^>]*?) -->.*?<!-- end -->", table, text, flags=re.S)


def load_suites():
    """What is kept of every suite."""
    return {path.stem: load(path) for path in sorted(STORED.glob("*.json"))}


def standings(suites):
    """What `diamond advise` follows: the methods of every suite, best first."""
    return {
        name: findings.rank_methods(suites[name]) for name in findings.SITUATIONS if name in suites
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("folders", nargs="*", type=Path)
    parser.add_argument("--to", type=Path, default=STORED)
    arguments = parser.parse_args()
    arguments.to.mkdir(parents=True, exist_ok=True)
    for folder in arguments.folders:
        results = suite_results.load_results(folder)
        (arguments.to / f"{results['suite']}.json").write_text(dumps(summarize(results)) + "\n")
    if arguments.to == STORED:
        ADVICE.write_text(dumps(standings(load_suites()), indent=1) + "\n")
        PAGE.write_text(fill_tables(PAGE.read_text()))
