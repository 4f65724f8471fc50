"""The upper loss alone, l(xbar) with y*(xbar), where nothing else is asked of a run."""

from typing import Any

import jax
import jax.numpy as jnp

from ..core import tree
from ..core.tree import Tree
from ..machine.compiler import MEASURES, compiled
from ..problem import Objectives
from . import lower_solution


@compiled(options=MEASURES, small=0)  # it runs often: not BRIEF, however little the data
def upper_loss(problem: Objectives, x: Tree, y: Tree, guess: Tree) -> tuple[jax.Array, Tree]:
    """l(xbar) = 1/m sum_i f_i(xbar, y_i*(xbar)) on all rows, and y*(xbar) of every agent.

    y* is found from `guess`, that of an evaluation before, or from y where `guess` is not finite.
    """
    agents, level = problem.train.count.shape[0], problem.lower_level
    average = lambda each: jax.tree.map(lambda a: a.sum(0) / agents, each)
    mean = average(x)

    def asked(function: Any, *given: Tree) -> Tree:
        one = lambda own: function(lower_solution.Own(own), *given)
        return average(jax.vmap(one)(problem))

    with jax.default_matmul_precision("highest"):
        if level != "none":
            guess = tree.select(tree.finite(guess), guess, y)
        if level == "personal":
            guess = jax.vmap(lambda own, y: lower_solution.solve(own, mean, y).y)(problem, guess)
        elif level == "common":
            pooled = lower_solution.Together(asked, jnp.sum(problem.train.count))
            there = lower_solution.newton(pooled, mean, average(guess)).y
            guess = jax.tree.map(lambda a: jnp.broadcast_to(a, (agents, *a.shape)), there)
        losses = jax.vmap(lambda own, y: own.f(mean, y, None))(problem, guess)
    regularizer = 0.0 if problem.prox is None else problem.prox.value(mean)
    return losses.sum(0) / agents + regularizer, guess
