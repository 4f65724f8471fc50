"""Learn the value of a policy by features; every agent has seen other rewards."""

import diamond

problem = diamond.gallery.policy_evaluation(agents=5)
network = diamond.network.erdos_renyi(5, p=0.5, seed=0)
run = diamond.solve(problem, network)
print(run.summary())
print("error of x", abs(run.x.mean(0) - problem.minimizer()).max())
