"""`diamond search` on cases of the benchmark: the best composed method beside the best published.

    python benchmarks/search_cases.py quadratic quadratic-noisy ridge --budget 6 --rounds 400

A line of JSON a case: how many candidates there were, and what both come to on fresh seeds at equal
calls.
"""

import argparse
import json
import warnings

from diamond.bench import SUITES, search

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("cases", nargs="+")
    parser.add_argument("--budget", type=int, default=6)
    parser.add_argument("--rounds", type=int, default=400)
    parser.add_argument("--seeds", type=int, default=5)
    given = parser.parse_args()
    known = {case.name: case for suite in SUITES.values() for case in suite.cases}
    warnings.simplefilter("ignore", RuntimeWarning)
    for name in given.cases:
        case = known[name]
        fixed = given.rounds, case.batch, given.budget, given.seeds
        found = search.search(*case.make(), *fixed)
        evidence = search.said([found.winner, found.published])
        print(json.dumps({"case": name, "tried": found.tried, "evidence": evidence}), flush=True)
