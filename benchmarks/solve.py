"""What `diamond.solve` needs to reach the targets of the benchmark, beside the best tuned method.

    python benchmarks/solve.py                            # all of docs/results/benchmark
    python benchmarks/solve.py --seeds 10 quadratic ridge
    python benchmarks/solve.py --many-rows 20000          # of each agent, in place of the cases

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

import jax.numpy as jnp
import numpy as np

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


def many_rows(rows: int, agents: int = 4, features: int = 30) -> Any:
    """Logistic regressions with badly scaled features, and one penalty per feature."""
    random = np.random.default_rng(5)
    scales = np.geomspace(1, 0.05, features)
    weights = random.normal(size=features) * (np.arange(features) < 10)

    def site() -> dict[str, Any]:
        a = random.normal(size=(rows, features)) * scales
        own_weights = 0.5 * weights + 0.3 * random.normal(size=features)
        is_one = random.uniform(size=rows) < 1 / (1 + np.exp(-a @ (own_weights / scales)))
        return {"a": a.astype(np.float32), "b": is_one.astype(np.float32)}

    def upper(x: Any, y: Any, rows: Any) -> Any:
        scores = rows["a"] @ y
        return jnp.mean(jnp.logaddexp(0, scores) - rows["b"] * scores)

    lower = lambda x, y, rows: upper(x, y, rows) + 0.5 * jnp.sum(jnp.exp(x) * y**2)
    start = lambda key: (jnp.zeros(features), jnp.zeros(features))
    train, valid = ([site() for _ in range(agents)] for _ in range(2))
    return diamond.Problem(upper, lower, start, train, valid)


def show_many_rows(rows: int, goal: float = 0.595) -> None:
    """Print the calls to an upper loss of `goal`, and the end."""
    problem = many_rows(rows)
    run = diamond.solve(problem, diamond.network.ring(problem.agents), every=1, measure="loss")
    history = run.history
    losses, calls = history["upper_loss"], sum(history[name] for name in CALLS)
    if (reached := losses <= goal).any():
        first = int(np.argmax(reached))
        print(f"{goal} after {calls[first]:,.0f} calls, {history['round'][first]} rounds")
    print(f"{losses[-1]:.4f} after {calls[-1]:,.0f} calls, {run.rounds} rounds; {run.message}")


def shown(number: float) -> str:
    return f"{number:,.0f}" if math.isfinite(number) else "-"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("cases", nargs="*", help="names of cases; all by default")
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--many-rows", type=int, help="rows of each agent of one large problem")
    options = parser.parse_args()
    warnings.simplefilter("ignore", RuntimeWarning)
    if options.many_rows:
        show_many_rows(options.many_rows)
        return
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
