"""Find wrong labels: five sites weigh their digits, half of which are labelled wrongly."""

import diamond

problem = diamond.problem_from_files("hyper_cleaning", dataset="digits", agents=5)
network = diamond.network.erdos_renyi(5, p=0.5, seed=0)
run = diamond.solve(problem, network)
print(run.summary())
print(f"F1 of finding wrong rows {run.history['f1'][-1]:.3f}")
