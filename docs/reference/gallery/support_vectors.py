"""Learn one penalty per pixel for the support vector machines of five sites."""

import diamond

problem = diamond.problem_from_files("support_vectors", dataset="digits", agents=5)
network = diamond.network.erdos_renyi(5, p=0.5, seed=0)
run = diamond.solve(problem, network)
print(run.summary())
print(f"accuracy {run.history['accuracy'][-1]:.3f}")
