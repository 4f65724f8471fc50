"""Fit one regression that leaves no site far behind; the sites have different laws."""

import numpy as np

import diamond

random = np.random.default_rng(0)
sites = [{"a": a, "b": a @ [1.0, 1 + k]} for k, a in enumerate(random.normal(size=(3, 30, 2)))]
problem = diamond.gallery.robust_regression(sites, sites, penalty=1.0)
run = diamond.solve(problem, diamond.network.ring(3))
print(run.summary())
print("losses of the sites", problem.losses({k: v.mean(0) for k, v in run.x.items()}).round(3))
print("closed form        ", problem.losses(problem.minimizer()).round(3))
