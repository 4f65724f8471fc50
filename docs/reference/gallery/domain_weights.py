"""Weigh sources of text for the language models of four sites; some sources are noise."""

import diamond

problem = diamond.gallery.domain_weights(agents=4, width=32, layers=1, heads=2)
network = diamond.network.erdos_renyi(4, p=0.5, seed=0)
run = diamond.solve(problem, network, rounds=200)
print(run.summary())
print("weights of the sources", problem.weights(run.x).round(2))
