"""Learn ten synthetic rows that replace the handwritten digits of five sites."""

import diamond

problem = diamond.problem_from_files("distillation", dataset="digits", agents=5)
network = diamond.network.erdos_renyi(5, p=0.5, seed=0)
run = diamond.solve(problem, network)
print(run.summary())
print(f"accuracy of a model of ten rows {run.history['accuracy'][-1]:.3f}")
