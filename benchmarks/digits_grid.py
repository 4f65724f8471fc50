"""One grid for all four methods on the digits of the demo: which constants, and who wins?

    python benchmarks/digits_grid.py            all trials into benchmarks/digits_grid.json

The same grid, draws and rounds for every method; M-SGD and DIAMOND also choose eta = gamma. The
best constants have the smallest upper loss (mean of the last fifth of the evaluations, so that one
lucky round does not decide), seed 0; the winners then run with five other seeds. Diverged trials
are kept as such.
"""

import itertools
import json
import statistics
from pathlib import Path

import jax

import diamond
from diamond import demo

EVERY, SEEDS = 50, (1, 2, 3, 4, 5)
ALPHA, BETA, ETA = (0.3, 1.0, 3.0), (0.1, 0.3, 1.0), (0.3, 1.0, 3.0)
OUT = Path(__file__).with_suffix(".json")


def trial(problem, network, name, constants, seed=0):
    given = {"method": name, "constants": constants, "seed": seed}
    algorithm = demo.method(name, constants)
    try:
        history = diamond.simulate(problem, network, algorithm, demo.ROUNDS, seed, EVERY).history
    except diamond.Diverged as error:
        return given | {"diverged": error.round, "upper_loss": float("inf")}
    tail = len(history["round"]) // 5
    last = ("upper_loss", "local_loss", "accuracy")
    return (
        given
        | {key: float(history[key][-tail:].mean()) for key in last}
        | {"metric": float(history["metric"][1:].mean()), "seconds": history["seconds"][-1]}
    )


def spread(runs, key):
    values = [run[key] for run in runs]
    return f"{statistics.mean(values):.4f} +- {statistics.stdev(values):.4f}"


def main():
    problem, network = demo.digits(), demo.peers()
    trials, winners = [], {}
    for name, constants in demo.METHODS.items():
        axes = [ALPHA, BETA, ETA][: len(constants)]
        found = [trial(problem, network, name, setting) for setting in itertools.product(*axes)]
        trials += found
        for each in found:
            print({k: v for k, v in each.items() if k != "seed"}, flush=True)
        best = min(found, key=lambda each: each["upper_loss"])["constants"]
        winners[name] = [trial(problem, network, name, best, seed) for seed in SEEDS]
    sizes = {"rounds": demo.ROUNDS, "every": EVERY, "device": jax.devices()[0].device_kind}
    OUT.write_text(json.dumps({"sizes": sizes, "grid": trials, "winners": winners}, indent=1))
    print(f"\nmean and spread over seeds {SEEDS}")
    print("method   constants           upper loss          own loss            average metric")
    for name, runs in winners.items():
        said = [spread(runs, key) for key in ("upper_loss", "local_loss", "metric")]
        print(f"{name:8} {runs[0]['constants']!s:18}  " + "   ".join(said))


if __name__ == "__main__":
    main()
