"""Choose the operation of every layer of a network for digits of three sites."""

import diamond

problem = diamond.problem_from_files("architecture_search", dataset="digits", agents=3)
run = diamond.solve(problem, diamond.network.ring(3), rounds=400)
print(run.summary())
print("operations", problem.architecture(run.x.mean(0)))
