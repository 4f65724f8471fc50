"""The upper loss l(xbar) with y*(xbar), if no other measure is requested."""

import jax

from ..core import pytrees
from ..core.pytrees import Tree
from ..problem import Objectives
from . import lower_solution
from .agent_statistics import AgentStatistics


def upper_loss(
    problem: Objectives, x: Tree, y: Tree, guess: Tree, over: AgentStatistics
) -> tuple[jax.Array, Tree]:
    """Return l(xbar) = 1/m sum_i f_i(xbar, y_i*(xbar)) on all rows, and y*(xbar) per agent.

    The solution starts from `guess`, y* of the previous evaluation, or from y if `guess` is not
    finite.
    """
    mean, level = over.average(x), problem.lower_level

    def personal(problem: Objectives, mean: Tree, guess: Tree) -> tuple[jax.Array, Tree]:
        solution = lower_solution.solve_lower_level(problem, mean, guess).y
        return problem.f(mean, solution, None), solution

    with jax.default_matmul_precision("highest"):
        if level != "none":
            guess = pytrees.select(pytrees.finite(guess), guess, y)
        if level == "personal":
            losses, guess = over.map_agents(personal)(problem, over.broadcast(mean), guess)
        else:
            if level == "common":
                start = over.average(guess)
                guess = over.broadcast(
                    lower_solution.solve_newton(over.pooled_oracle(problem), mean, start).y
                )
            evaluate = over.map_agents(lambda objectives, mean, y: objectives.f(mean, y, None))
            losses = evaluate(problem, over.broadcast(mean), guess)
    regularizer = 0.0 if problem.prox is None else problem.prox.value(mean)
    return over.total(losses) / over.count + regularizer, guess
