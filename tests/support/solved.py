"""y*(x) and the exact hypergradient of a whole problem: the mean over its agents."""

from functools import cache

import jax
import jax.numpy as jnp

from diamond.metrics.lower_solution import (
    AgentOracle,
    MeanOracle,
    implicit_hypergradient,
    solve_newton,
)


def solved(problem, x):
    """(y*(x), grad l(x)); of a personal lower level, one y an agent."""
    return _solver(problem)(problem.objectives(), jax.tree.map(jnp.asarray, x))


@cache
def _solver(problem):
    y = problem.start(0)[1]
    whole = lambda tree: jax.tree.map(lambda a: a.mean(0), tree)

    def by(oracle, x):
        found = solve_newton(oracle, x, y).y
        return found, implicit_hypergradient(oracle, x, found)

    def personal(all, x):
        each, gradients = jax.vmap(lambda own: by(AgentOracle(own), x))(all)
        return each, whole(gradients)

    def common(all, x):
        mean = lambda of, *at: whole(jax.vmap(lambda own: of(AgentOracle(own), *at))(all))
        return by(MeanOracle(mean, all.train.count.sum()), x)

    return jax.jit({"personal": personal, "common": common}[problem.lower_level])
