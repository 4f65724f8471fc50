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


def solve_exactly(problem, x):
    """(y*(x), grad l(x)); of a personal lower level, one y an agent."""
    return _solver(problem)(problem.objectives(), jax.tree.map(jnp.asarray, x))


@cache
def _solver(problem):
    y = problem.start(0)[1]
    agent_mean = lambda tree: jax.tree.map(lambda a: a.mean(0), tree)

    def solve_with_oracle(oracle, x):
        y_star = solve_newton(oracle, x, y).y
        return y_star, implicit_hypergradient(oracle, x, y_star)

    def personal(all_objectives, x):
        y_of_agents, gradients = jax.vmap(
            lambda objectives: solve_with_oracle(AgentOracle(objectives), x)
        )(all_objectives)
        return y_of_agents, agent_mean(gradients)

    def common(all_objectives, x):
        mean = lambda function, *arguments: agent_mean(
            jax.vmap(lambda objectives: function(AgentOracle(objectives), *arguments))(
                all_objectives
            )
        )
        return solve_with_oracle(MeanOracle(mean, all_objectives.train.count.sum()), x)

    return jax.jit({"personal": personal, "common": common}[problem.lower_level])
