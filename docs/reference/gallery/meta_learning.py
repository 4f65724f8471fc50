"""Learn a network that five sites share; each trains its last layer for its own digits."""

import diamond

problem = diamond.problem_from_files("meta_learning", dataset="digits", agents=5)
network = diamond.network.erdos_renyi(5, p=0.5, seed=0)
run = diamond.solve(problem, network, rounds=1000)
print(run.summary())
print(f"accuracy {run.history['accuracy'][-1]:.3f}")
