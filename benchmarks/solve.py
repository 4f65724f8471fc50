"""What `diamond.solve` needs to reach the targets of the benchmark, beside the best tuned method.

    python benchmarks/solve.py                            # all of docs/results/benchmark
    python benchmarks/solve.py --seeds 10 quadratic ridge

Prints one row a case: the least calls and bytes of a tuned method; calls, bytes and rounds of
`solve` in the median over the seeds (a dash where fewer than half of them reach the target); and
the calls of each seed. `solve` is evaluated after every round.
"""

import argparse
import json
import math
import statistics
import warnings
from pathlib import Path
from typing import Any

import diamond
from diamond.bench.suites import SUITES

RESULTS = Path(__file__).parent.parent / "docs" / "results" / "benchmark"
CALLS = ("gradients", "hvps", "jvps")


def tuned_results() -> dict[str, tuple[float, dict[str, float]]]:
    """The target of each case, and the least calls and bytes of a tuned method."""
    results = {}
    for path in sorted(RESULTS.glob("*.json")):
        suite = json.loads(path.read_text())
        for case, goal in suite["targets"].items():
            rows = [row for row in suite["costs"]["tuned"] if row["case"] == case]
            best = {
                name: min((row[name] for row in rows if row[name]), default=math.nan)
                for name in ("calls", "bytes")
            }
            results[case] = goal["target"], best
    return results


def reach(case: Any, target: float, seed: int) -> tuple[float, float, float]:
    """Calls, bytes and rounds of `solve` from this seed; infinite if it misses the target."""
    problem, network = case.make()
    try:
        run = diamond.solve(problem, network, target=target, every=1, seed=seed)
    except diamond.Diverged:
        return math.inf, math.inf, math.inf
    last = {name: values[-1] for name, values in run.history.items()}
    if not last["upper_loss"] <= target:
        return math.inf, math.inf, math.inf
    return sum(last[name] for name in CALLS), last["bytes"], last["round"]


def shown(number: float) -> str:
    return f"{number:,.0f}" if math.isfinite(number) else "-"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("cases", nargs="*", help="names of cases; all by default")
    parser.add_argument("--seeds", type=int, default=4)
    options = parser.parse_args()
    warnings.simplefilter("ignore", RuntimeWarning)
    targets = tuned_results()
    cases = {case.name: case for suite in SUITES.values() for case in suite.cases}
    print("| case | best tuned | bytes | solve | bytes | rounds | each seed |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | --- |")
    for name in options.cases or targets:
        target, best = targets[name]
        runs = [reach(cases[name], target, seed) for seed in range(options.seeds)]
        medians = [statistics.median_low(column) for column in zip(*runs)]
        calls_of_seeds = ", ".join(shown(calls) for calls, *_ in runs)
        numbers = best["calls"], best["bytes"], *medians
        print("|", name, "|", *(f"{shown(n)} |" for n in numbers), calls_of_seeds, "|", flush=True)


if __name__ == "__main__":
    main()
