"""Newton's method on pytrees, with linear systems solved by products."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from . import linear_solvers, pytrees
from .invariant_hoisting import hoist_invariants
from .linear_solvers import Product
from .pytrees import Tree

NEWTON_STEPS = 50
CG_STEPS = 500

Residual = Callable[[Tree], Tree]
# (J, r) -> (J^-1 r, number of products)
NewtonSolve = Callable[[Product, Tree], tuple[Tree, jax.Array]]


class NewtonResult(NamedTuple):
    """Last point of Newton's method."""

    y: Tree
    error: jax.Array  # last Newton step relative to 1 + ||y||: about the distance to the solution
    residuals: jax.Array  # evaluations of the residual
    products: jax.Array  # products with its Jacobian


def default_tolerance(dtype: Any) -> float:
    """Return the `error` that counts as solved: precision^(2/3), 2e-5 in float32."""
    return float(jnp.finfo(dtype).eps) ** (2 / 3)


def solve_equation(
    residual: Residual,
    y: Tree,
    solve: NewtonSolve,
    tolerance: float,
    steps: int = NEWTON_STEPS,
    norm: Callable[[Tree], jax.Array] = pytrees.norm,
) -> NewtonResult:
    """Solve residual(y) = 0 from a first guess y.

    A step is halved until `norm` of the residual shrinks. Ends when the step is below `tolerance`,
    when the residual does not decrease further, or after `steps`.
    """

    def unfinished(carry: Any) -> jax.Array:
        _, _, error, k, is_stuck, _ = carry
        return (k < steps) & (error > tolerance) & ~is_stuck

    def step(carry: Any) -> Any:
        y, size, _, k, _, (residuals, products) = carry
        value, product = jax.linearize(residual, y)
        move, iterations = solve(product, value)

        def is_worse(search: Any) -> jax.Array:
            rate, new, _ = search
            return ~(new < size) & (rate > 1e-6)

        def halve(search: Any) -> Any:
            rate, trials = search[0] / 2, search[2]
            return rate, norm(residual(pytrees.axpy(-rate, move, y))), trials + 1

        rate, trials = pytrees.mapped_with((jnp.ones_like(size), jnp.int32(1)), size)
        first = rate, norm(residual(pytrees.axpy(-1, move, y))), trials
        rate, new, trials = jax.lax.while_loop(is_worse, halve, first)
        is_stuck = ~(new < size)
        length = pytrees.norm(move)  # 0 if `solve` finds no direction: no solution there
        has_no_solution = (length == 0) & (pytrees.norm(value) > 0)
        error = jnp.where(has_no_solution, jnp.inf, length / (1 + pytrees.norm(y)))
        next_y = pytrees.select(is_stuck, y, pytrees.axpy(-rate, move, y))
        counts = residuals + 1 + trials, products + iterations
        return next_y, jnp.where(is_stuck, size, new), error, k + 1, is_stuck, counts

    size = norm(residual(y))
    initial = jnp.full_like(size, jnp.inf), jnp.int32(0), (jnp.int32(1), jnp.int32(0))
    error, k, counts = pytrees.mapped_with(initial, size)
    carry = (y, size, error, k, size == 0, counts)
    y, size, error, _, _, (residuals, products) = jax.lax.while_loop(unfinished, step, carry)
    return NewtonResult(y, jnp.where(size == 0, 0, error), residuals, products)


def minimize(
    gradient: Residual, y: Tree, tolerance: float, steps: int = NEWTON_STEPS
) -> NewtonResult:
    """Minimize a strongly convex function from its gradient, by Newton's method with CG.

    Coordinates are scaled where their curvatures differ by orders of magnitude
    (`linear_solvers.row_scales`). Along Newton's direction the norm of the gradient must shrink.
    """
    gradient = hoist_invariants(gradient, y)
    scales = linear_solvers.row_scales(jax.linearize(gradient, y)[1], y)
    solve = lambda product, b: linear_solvers.scaled_solve(product, b, scales, CG_STEPS, tolerance)
    scaled_norm = lambda value: pytrees.norm(pytrees.multiply(scales, value))
    found = solve_equation(
        gradient, y, lambda product, b: solve(product, b)[:2], tolerance, steps, scaled_norm
    )
    return found._replace(products=found.products + linear_solvers.SCALE_PROBES)
