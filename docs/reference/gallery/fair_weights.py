"""Weigh sites, so that one classifier of handwritten digits serves all of them."""

import diamond

problem = diamond.problem_from_files(
    "fair_weights", dataset="digits", agents=5, partition="dirichlet:concentration=0.3"
)
network = diamond.network.erdos_renyi(5, p=0.5, seed=0)
run = diamond.solve(problem, network)
print(run.summary())
print("weights of the sites", run.x.mean(0).round(3))
