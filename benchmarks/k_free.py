"""DIAMOND with its chain and without it (`k_free`): the same constants, draws and rounds.

    python benchmarks/k_free.py [--small]

Digits of the demo (9 agents by label), and quadratics of condition 3, 30 and 300 (9 agents, K = 10
and L_g known to DIAMOND); three seeds, mean over the last fifth of the evaluations. With the same
constants k_free matches on the digits with 40 % of the samples and 56 % of the time, is better at
condition 3, and is unstable at 30 and 300.
"""

import sys

import numpy as np

import diamond
from diamond import schedules
from diamond.config.digits import digits
from diamond.templates import demo_experiment

SMALL = "--small" in sys.argv
SEEDS, CONDITIONS = ((0,), (3,)) if SMALL else ((0, 1, 2), (3, 30, 300))


def compare(name, problem, network, steps, batch, chain, rounds, every):
    rounds, every = (50, 10) if SMALL else (rounds, every)
    methods = {
        "diamond": diamond.diamond(**steps, batch=batch, hypergradient=chain),
        "k_free": diamond.k_free(**steps, batch=batch),
    }
    for label, algorithm in methods.items():
        runs = [
            diamond.simulate(problem, network, algorithm, rounds, seed, every).history
            for seed in SEEDS
        ]
        tail = len(runs[0]["round"]) // 5
        late = lambda key, runs=runs, tail=tail: np.mean([run[key][-tail:].mean() for run in runs])
        average = np.mean([run["metric"][1:].mean() for run in runs])
        samples, seconds = (
            np.mean([run[key][-1] for run in runs]) for key in ("samples", "seconds")
        )
        print(
            f"{name:16} {label:8} {late('upper_loss'):10.4f} {late('stationarity'):13.2e} "
            f"{average:15.4g} {samples:10,.0f} {1e6 * seconds / rounds:9.0f}",
            flush=True,
        )


def main():
    print("problem          method   upper loss  stationarity  average metric    samples  us/round")
    network = demo_experiment.make_network()
    steps = schedules.paper(
        *demo_experiment.METHODS["DIAMOND"], demo_experiment.METHODS["DIAMOND"][-1]
    )
    compare(
        "digits", digits(), network, steps, demo_experiment.BATCH, demo_experiment.CHAIN, 1000, 50
    )
    for condition in CONDITIONS:
        quadratic = diamond.gallery.quadratic(9, 10, 20, 200, mu=1.5 / condition, noise=0.5)
        weights = schedules.squared(3.0, schedules.power(1.0))
        steps = dict(alpha=schedules.power(0.1 / condition), beta=schedules.power(0.9))
        steps |= dict(eta=weights, gamma=weights)
        chain = diamond.hypergradient.neumann(10, 1.6)
        name = f"condition {condition}"
        compare(name, quadratic, network, steps, 16, chain, 4000, 200)


if __name__ == "__main__":
    main()
