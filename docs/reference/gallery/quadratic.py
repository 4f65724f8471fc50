"""Compare a run with the solution in closed form."""

import diamond

problem = diamond.gallery.quadratic(agents=5)
network = diamond.network.erdos_renyi(5, p=0.5, seed=0)
run = diamond.solve(problem, network)
print(run.summary())
print("error of x", abs(run.x.mean(0) - problem.minimizer()).max())
