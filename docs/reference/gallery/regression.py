"""Learn one ridge penalty per feature for three sites; only two of five features matter."""

import numpy as np

import diamond


def rows(seed, n=60):
    a = np.random.default_rng(seed).normal(size=(n, 6))
    return {"a": a[:, :5], "b": a[:, 0] - 2 * a[:, 1] + a[:, 5]}


parts = [[rows(10 * part + site) for site in range(3)] for part in range(3)]
problem = diamond.gallery.regression(*parts, names=["u", "v", "noise 1", "noise 2", "noise 3"])
run = diamond.solve(problem, diamond.network.ring(3))
print(run.summary())
