"""Learn a joint policy from private rewards; each agent has its own critic."""

import diamond

problem = diamond.gallery.actor_critic(agents=9)
network = diamond.network.erdos_renyi(9, p=0.5, seed=0)
run = diamond.solve(problem, network)
print(run.summary())
best, _ = problem.optimal_policy()
print(f"mean return {run.history['return'][-1]:.3f} of {best:.3f}")
