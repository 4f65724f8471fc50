"""Find wrong labels for a convolutional network that five sites train together."""

import diamond

problem = diamond.problem_from_files("network_cleaning", dataset="digits", agents=5)
network = diamond.network.erdos_renyi(5, p=0.5, seed=0)
run = diamond.solve(problem, network, rounds=200)
print(run.summary())
print(f"AUC of right against wrong rows {run.history['auc'][-1]:.3f}")
