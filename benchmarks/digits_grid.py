"""One grid for all four methods on the digits of the demo: which constants, and who wins?

    python benchmarks/digits_grid.py            all trials into benchmarks/digits_grid.json
    python benchmarks/digits_grid.py --small    one setting and short runs, written nowhere

27 settings, the same draws and rounds for every method. With s = (2 + t)^(-1/3): alpha = a s,
beta = b s, eta = gamma = e s^2; methods without momentum try nine values of a instead. Two rules
choose, on seed 0: the smallest upper loss (mean of the last fifth of the evaluations, so that one
lucky round does not decide); and the smallest average metric among settings that learn (upper loss
below 1; a predictor that knows the agents' label counts alone has 1.17). The winners then run with
five other seeds. Diverged trials are kept as such.
"""

import itertools
import json
import statistics
import sys
from pathlib import Path

import jax

import diamond
from diamond.config.digits import digits
from diamond.reproduce.paper_methods import build_method
from diamond.templates import demo_experiment

SMALL = "--small" in sys.argv
EVERY, SEEDS = demo_experiment.EVERY, (1, 2) if SMALL else (1, 2, 3, 4, 5)
ROUNDS = 5 * EVERY if SMALL else demo_experiment.ROUNDS
ALPHA, BETA, ETA = [(1.0,)] * 3 if SMALL else [(0.3, 1.0, 3.0), (0.1, 0.3, 1.0), (0.3, 1.0, 3.0)]
FINE = (1.0,) if SMALL else (0.1, 0.2, 0.3, 0.5, 1.0, 2.0, 3.0, 5.0, 10.0)
LEARNS = 1.0
RULES = {
    "upper loss": lambda trial: trial["upper_loss"],
    "average metric": lambda trial: (trial["upper_loss"] >= LEARNS, trial.get("metric", 1e9)),
}
OUT = Path(__file__).with_suffix(".json")


def trial(problem, network, name, constants, seed=0):
    setting = {"method": name, "constants": constants, "seed": seed}
    algorithm = build_method(name, constants, demo_experiment.BATCH, demo_experiment.CHAIN)
    try:
        history = diamond.simulate(problem, network, algorithm, ROUNDS, seed, EVERY).history
    except diamond.Diverged as error:
        return setting | {"diverged": error.round, "upper_loss": float("inf")}
    tail = len(history["round"]) // 5
    measures = ("upper_loss", "local_loss", "accuracy")
    return (
        setting
        | {key: float(history[key][-tail:].mean()) for key in measures}
        | {"metric": float(history["metric"][1:].mean()), "seconds": history["seconds"][-1]}
    )


def spread(runs, key):
    values = [run[key] for run in runs]
    return f"{statistics.mean(values):.4f} +- {statistics.stdev(values):.4f}"


def main():
    problem, network = digits(), demo_experiment.make_network()
    trials, winners = [], {rule: {} for rule in RULES}
    for name, constants in demo_experiment.METHODS.items():
        axes = (ALPHA, BETA, ETA) if len(constants) == 3 else (FINE, BETA)
        settings = [(a, b / a, *(e / a**2 for e in e)) for a, b, *e in itertools.product(*axes)]
        trials_of_method = []
        for setting in settings:
            trials_of_method.append(trial(problem, network, name, setting))
            print({k: v for k, v in trials_of_method[-1].items() if k != "seed"}, flush=True)
        trials += trials_of_method
        for rule, score in RULES.items():
            best = min(trials_of_method, key=score)["constants"]
            winners[rule][name] = [trial(problem, network, name, best, seed) for seed in SEEDS]
    sizes = {
        "rounds": ROUNDS,
        "every": EVERY,
        "device": jax.devices()[0].device_kind,
    }
    if not SMALL:
        OUT.write_text(json.dumps({"sizes": sizes, "grid": trials, "winners": winners}))
    for rule, methods in winners.items():
        print(f"\nconstants chosen by {rule}; mean and spread over seeds {SEEDS}")
        print("method   upper loss          own loss            average metric      constants")
        for name, runs in methods.items():
            cells = [spread(runs, key) for key in ("upper_loss", "local_loss", "metric")]
            constants = ", ".join(f"{c:.3g}" for c in runs[0]["constants"])
            print(f"{name:8} " + "   ".join(cells) + f"   {constants}")


if __name__ == "__main__":
    main()
