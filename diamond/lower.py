"""y*(x) and the exact hypergradient of one agent, on all its rows: what measures are made of."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from . import linear, tree
from .cost import Cost
from .hoist import hoisted
from .problem import Objectives
from .tree import Tree

NEWTON_STEPS = 50
CG_STEPS = 500


class Solution(NamedTuple):
    """The lower level solved at x."""

    y: Tree  # y*(x)
    error: jax.Array  # the last Newton step relative to 1 + ||y||: about the distance to y*(x)
    cost: Cost  # in rows


def tolerance(dtype: Any) -> float:
    """The `error` that counts as solved: precision^(2/3), 2e-5 in float32, 4e-11 in float64."""
    return float(jnp.finfo(dtype).eps) ** (2 / 3)


def solve(problem: Objectives, x: Tree, y: Tree) -> Solution:
    """y*(x) = argmin_y g(x, y) from a first guess y, by Newton's method with CG inside.

    A step is halved until ||g_y|| shrinks (along Newton's direction it must, g being strongly
    convex). Ends when the step is below `tolerance`, when rounding lets ||g_y|| shrink no more, or
    after 50 steps.
    """
    gradient = hoisted(lambda y: jax.grad(problem.g, 1)(x, y, None), y)
    small = tolerance(tree.norm(y).dtype)

    def unfinished(carry: Any) -> jax.Array:
        _, _, error, k, stuck, _ = carry
        return (k < NEWTON_STEPS) & (error > small) & ~stuck

    def newton(carry: Any) -> Any:
        y, size, _, k, _, (gradients, products) = carry
        value, product = jax.linearize(gradient, y)
        step, iterations = linear.conjugate_gradient(product, value, CG_STEPS, small)

        def worse(search: Any) -> jax.Array:
            rate, new, _ = search
            return ~(new < size) & (rate > 1e-6)

        def halve(search: Any) -> Any:
            rate, tried = search[0] / 2, search[2]
            return rate, tree.norm(gradient(tree.axpy(-rate, step, y))), tried + 1

        first = jnp.ones_like(size), tree.norm(gradient(tree.axpy(-1, step, y))), jnp.int32(1)
        rate, new, tried = jax.lax.while_loop(worse, halve, first)
        stuck = ~(new < size)
        length = tree.norm(step)  # 0 where the curvature is not positive: nothing is solved there
        lost = (length == 0) & (tree.norm(value) > 0)
        error = jnp.where(lost, jnp.inf, length / (1 + tree.norm(y)))
        moved = tree.select(stuck, y, tree.axpy(-rate, step, y))
        spent = gradients + 1 + tried, products + iterations
        return moved, jnp.where(stuck, size, new), error, k + 1, stuck, spent

    size = tree.norm(gradient(y))
    spent = jnp.int32(1), jnp.int32(0)
    carry = (y, size, jnp.full_like(size, jnp.inf), jnp.int32(0), size == 0, spent)
    y, size, error, _, _, (gradients, products) = jax.lax.while_loop(unfinished, newton, carry)
    rows = problem.train.count
    cost = Cost(samples=rows, gradients=gradients * rows, hvps=products * rows)
    return Solution(y, jnp.where(size == 0, 0, error), cost)


def hypergradient(problem: Objectives, x: Tree, y: Tree) -> Tree:
    """f_x - g_xy [g_yy]^-1 f_y at (x, y) on all rows, eq. (4): exact at y = y*(x), eq. (3)."""
    gradient = lambda x, y: jax.grad(problem.g, 1)(x, y, None)
    f_x, f_y = jax.grad(problem.f, (0, 1))(x, y, None)
    product = jax.linearize(lambda y: gradient(x, y), y)[1]
    z, _ = linear.conjugate_gradient(product, f_y, CG_STEPS, tolerance(tree.norm(f_y).dtype))
    return tree.sub(f_x, jax.vjp(lambda x: gradient(x, y), x)[1](z)[0])
