"""Choose amounts in assets from private records of returns; the variance has a squared mean."""

import diamond

problem = diamond.gallery.portfolio(agents=5)
run = diamond.solve(problem, diamond.network.ring(5))
print(run.summary())
print("error of x", abs(run.x.mean(0) - problem.minimizer()).max())
