"""DIAMOND for a common lower level beside SPARKLE: when momentum on all three directions pays.

    python benchmarks/common.py [--rounds 2000] [--seeds 5]

Both methods get the same grid of 27 settings (alpha, beta = delta, weight of the new sample), tuned
on two seeds by the average metric over the last half; what is shown is that average, its spread
over other seeds, and the setting. Both draw the same rows; momentum takes its gradients at two
points, so it makes twice the oracle calls of a sample. The table of docs/results/methods.md.
"""

import argparse
import itertools

import jax.numpy as jnp
import numpy as np

import diamond
from diamond.engine.many_runs import simulate_many
from diamond.gallery import quadratic

ALPHAS, BETAS, WEIGHTS = (0.003, 0.01, 0.03), (0.05, 0.1, 0.2), (0.03, 0.1, 0.3)
TUNING = 2


def logistic(agents: int, skew: float) -> diamond.Problem:
    """Per-feature penalties of one logistic regression that all sites share."""
    random = np.random.default_rng(0)
    truth = random.normal(size=10)

    def site(shift: float, rows: int) -> dict:
        a = random.normal(size=(rows, 10)) + shift * random.normal(size=10)
        sign = np.where(a @ truth + random.normal(size=rows) > 0, 1.0, -1.0)
        return {"a": a.astype(np.float32), "b": sign.astype(np.float32)}

    def fit(y, rows):
        return jnp.mean(jnp.logaddexp(0.0, -rows["b"] * (rows["a"] @ y)))

    return diamond.Problem(
        upper=lambda x, y, rows: fit(y, rows),
        lower=lambda x, y, rows: fit(y, rows) + 0.1 * jnp.mean(jnp.exp(x) * y**2),
        init=lambda key: (jnp.zeros(10), jnp.zeros(10)),
        train=[site(skew, 128) for _ in range(agents)],
        valid=[site(skew, 128) for _ in range(agents)],
        lower_level="common",
    )


def quad(noise: float, agents: int = 8) -> diamond.Problem:
    return quadratic(agents=agents, rows=64, noise=noise, lower_level="common")


CASES = {
    "quadratic, no noise, ring of 8": lambda: (quad(0.0), diamond.network.ring(8)),
    "quadratic, noise 0.5, ring of 8": lambda: (quad(0.5), diamond.network.ring(8)),
    "quadratic, noise 2, ring of 8": lambda: (quad(2.0), diamond.network.ring(8)),
    "logistic, alike sites, ring of 8": lambda: (logistic(8, 0.0), diamond.network.ring(8)),
    "logistic, shifted sites, star of 8": lambda: (logistic(8, 1.0), diamond.network.star(8)),
}
METHODS = {
    "sparkle": lambda a, b, w: diamond.sparkle(a, b, b, w, batch=8),
    "diamond_common": lambda a, b, w: diamond.diamond_common(a, b, b, w, w, batch=8, order="atc"),
}


def average(outcome) -> float:
    """The mean metric over the last half of a run; infinite if it diverged."""
    if outcome.diverged is not None:
        return np.inf
    metric = outcome.history["metric"]
    return float(np.mean(metric[len(metric) // 2 :]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=2000)
    parser.add_argument("--seeds", type=int, default=5)
    options = parser.parse_args()
    grid = list(itertools.product(ALPHAS, BETAS, WEIGHTS))
    for label, make in CASES.items():
        problem, network = make()
        cells = []
        for method in METHODS.values():
            problem_and_network = problem, network
            trials = [(method(*s), seed) for s in grid for seed in range(TUNING)]
            outcomes = simulate_many(
                *problem_and_network, trials, options.rounds, options.rounds // 10, batched=True
            )
            scores = (
                np.array([average(outcome) for outcome in outcomes]).reshape(-1, TUNING).mean(1)
            )
            best = grid[int(np.argmin(scores))]
            fresh = [(method(*best), 100 + seed) for seed in range(options.seeds)]
            ends = simulate_many(
                *problem_and_network, fresh, options.rounds, options.rounds // 10, batched=True
            )
            values = [average(outcome) for outcome in ends]
            at = ", ".join(f"{value:g}" for value in best)
            cells.append(f"{np.mean(values):.2g} +- {np.std(values):.1g} ({at})")
        print(f"| {label} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
