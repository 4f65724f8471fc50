"""Learn adapters of a frozen network that six sites share; each adds adapters of its own."""

import diamond

problem = diamond.gallery.personal_lora(agents=6)
network = diamond.network.erdos_renyi(6, p=0.5, seed=0)
run = diamond.solve(problem, network, rounds=500)
print(run.summary())
print(f"share of the error removed {run.history['gain'][-1]:.3f}")
