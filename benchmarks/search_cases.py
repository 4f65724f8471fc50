"""`diamond search` on cases of the benchmark: the best composed method beside the best published.

    python benchmarks/search_cases.py quadratic quadratic-noisy ridge --budget 6 --rounds 400

A line of JSON a case: how many candidates there were, and what both come to on fresh seeds at equal
calls. `--parts carried,recursive,ed,local,xyz` takes one combination through the rules of the suite
instead: what it costs to the targets in docs/benchmark/, beside the best published method there.
"""

import argparse
import json
import warnings
from pathlib import Path

from diamond.bench import SUITES, play, search, statistics

KEPT = Path(__file__).parents[1] / "docs" / "benchmark" / "personal.json"
WORDS = ("directions", "estimator", "x", "y", "plan")


def by_the_rules(name, words, folder):
    """What a combination costs on a case of the personal suite, and the best published method."""
    kept = json.loads(KEPT.read_text())
    parts = dict(zip(WORDS, words)) | {"solves": "personal"}
    pair = play.made(SUITES["personal"], name, "method", folder, **parts)
    target = kept["targets"][name]["target"]
    calls = [statistics.cost(run, target, "calls") for run in pair["tuned"]]
    there = [r for r in kept["costs"]["tuned"] if r["case"] == name and r["calls"] is not None]
    best = min(there, key=lambda r: r["calls"])
    found = {"median": statistics.median(calls), "interval": statistics.interval(calls)}
    return found | {
        "best": best["method"],
        "its": [best[f"calls{k}"] for k in ("", "_low", "_high")],
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("cases", nargs="+")
    parser.add_argument("--budget", type=int, default=6)
    parser.add_argument("--rounds", type=int, default=400)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--parts")
    given = parser.parse_args()
    warnings.simplefilter("ignore", RuntimeWarning)
    if given.parts:
        for name in given.cases:
            found = by_the_rules(name, given.parts.split(","), Path("bench/composed"))
            print(json.dumps({"case": name} | found), flush=True)
        raise SystemExit
    known = {case.name: case for suite in SUITES.values() for case in suite.cases}
    for name in given.cases:
        case = known[name]
        fixed = given.rounds, case.batch, given.budget, given.seeds
        found = search.search(*case.make(), *fixed)
        evidence = search.said([found.winner, found.published])
        print(json.dumps({"case": name, "tried": found.tried, "evidence": evidence}), flush=True)
