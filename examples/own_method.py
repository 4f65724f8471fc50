"""Compose a method of your own and compare it with DIAMOND.

A method of the family is a few choices: directions, estimator, how x and y are communicated, and
the order of the updates. Here x follows exact diffusion, which sends no tracker: half the bytes.
"""

import diamond

problem = diamond.gallery.quadratic(agents=5)
network = diamond.network.ring(5)
steps = {"batch": 8, "alpha": 0.03, "beta": 0.5}
own = diamond.compose(
    directions="implicit",
    estimator="momentum",
    x="ed",
    y="local",
    hypergradient=diamond.hypergradient.warm_start(),
    **steps,
)
methods = {"DIAMOND": diamond.diamond(**steps), "own method": own}
comparison = diamond.compare(problem, network, methods, rounds=500)
print(comparison.table())
for (label, _), run in comparison.runs.items():
    error = abs(run.x - problem.minimizer()).max()
    print(f"{label}: largest error of x {error:.3f}")
