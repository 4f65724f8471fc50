"""Learn how four agents move on a plane, each rewarded by where the next one goes."""

import diamond

problem = diamond.gallery.navigation(agents=4)
network = diamond.network.erdos_renyi(4, p=0.5, seed=0)
run = diamond.solve(problem, network, rounds=300)
print(run.summary())
best, _ = problem.optimal_policy()
print(f"mean return {run.history['return'][-1]:.3f}, by planning {best:.3f}")
