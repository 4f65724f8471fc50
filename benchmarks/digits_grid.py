"""One grid for all four methods on the digits of the demo: which constants, and who wins?

    python benchmarks/digits_grid.py            all trials into benchmarks/digits_grid.json

The same grid, draws and rounds for every method; M-SGD and DIAMOND also choose eta = gamma. The
best constants are those with the smallest upper loss at the end (the mean of the last tenth of the
evaluations: a single one is a draw of luck); the average metric stands beside. Trials that
diverge are kept as such.
"""

import itertools
import json
from pathlib import Path

import jax

import diamond
from diamond.demo import CHAIN, METHODS, digits, grid_network

ROUNDS, EVERY, SEEDS = 1000, 25, (0, 1)
ALPHA, BETA, ETA = (0.1, 0.3, 1.0, 3.0), (0.1, 0.3, 1.0), (0.3, 1.0, 3.0)
OUT = Path(__file__).with_suffix(".json")


def trial(problem, network, name, c_alpha, c_beta, c_eta, seed):
    steps = diamond.schedule.paper(c_alpha, c_beta, c_eta or 1.0, c_eta or 1.0)
    if c_eta is None:
        steps = {"alpha": steps["alpha"], "beta": steps["beta"]}
    algorithm = getattr(diamond, name)(**steps, batch=32, hypergradient=CHAIN)
    given = {"method": name, "c_alpha": c_alpha, "c_beta": c_beta, "c_eta": c_eta, "seed": seed}
    try:
        history = diamond.simulate(problem, network, algorithm, ROUNDS, seed, EVERY).history
    except diamond.Diverged as error:
        return given | {"diverged": error.round}
    tail = max(1, len(history["round"]) // 10)
    return given | {
        "upper_loss": float(history["upper_loss"][-tail:].mean()),
        "metric": float(history["metric"][1:].mean()),
        "accuracy": float(history["accuracy"][-tail:].mean()),
        "samples": float(history["samples"][-1]),
        "seconds": float(history["seconds"][-1]),
    }


def mean(trials):
    """The trials of one setting, averaged over its seeds; None if any diverged."""
    if any("diverged" in t for t in trials):
        return None
    return {
        key: sum(t[key] for t in trials) / len(trials)
        for key in ("upper_loss", "metric", "accuracy")
    }


def main():
    problem, network = digits(), grid_network()
    trials, best = [], {}
    for name in METHODS:
        etas = ETA if name in ("diamond", "m_sgd") else (None,)
        for setting in itertools.product(ALPHA, BETA, etas):
            found = [trial(problem, network, name, *setting, seed) for seed in SEEDS]
            trials += found
            score = mean(found)
            print(name, setting, score, flush=True)
            if score and (name not in best or score["upper_loss"] < best[name][1]["upper_loss"]):
                best[name] = setting, score
    sizes = {
        "rounds": ROUNDS,
        "every": EVERY,
        "seeds": SEEDS,
        "device": jax.devices()[0].device_kind,
    }
    OUT.write_text(json.dumps({"sizes": sizes, "best": best, "trials": trials}, indent=1))
    print(
        f"\n{'method':10} {'c_alpha':>7} {'c_beta':>7} {'c_eta':>6} {'upper loss':>11} {'average metric':>15}"
    )
    for name, ((a, b, e), score) in best.items():
        print(
            f"{name:10} {a:7} {b:7} {e or '':>6} {score['upper_loss']:11.4f} {score['metric']:15.4f}"
        )


if __name__ == "__main__":
    main()
