"""Learn a reward from the votes of four groups of annotators, on answers of its own policy."""

import numpy as np

import diamond

problem = diamond.gallery.rlhf(agents=4)
run = diamond.solve(problem, diamond.network.ring(4))
print(run.summary())
learned = problem.best_policy(run.x.mean(0))
print("wins against the reference policy", problem.win_rate(learned))
print("wins of the reference policy     ", problem.win_rate(np.exp(problem.reference)))
