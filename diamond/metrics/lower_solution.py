"""y*(x) and the exact hypergradient on all rows, for the measures.

Either for one agent with a personal lower level, or for all agents with a common one: then
`MeanOracle` averages their gradients and products for 1/m sum_i g_i.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp

from ..core import linear_solvers, pytrees
from ..core.cost_counter import Cost
from ..core.invariant_hoisting import hoist_invariants
from ..core.pytrees import Tree
from ..problem import Objectives

NEWTON_STEPS = 50
CG_STEPS = 500
SINGULAR = 8.0  # relative curvature, in units of the precision, that counts as 0


class Solution(NamedTuple):
    """Solution of the lower level at x."""

    y: Tree  # y*(x)
    error: jax.Array  # last Newton step relative to 1 + ||y||: about the distance to y*(x)
    cost: Cost  # in rows


class CheckedHypergradient(NamedTuple):
    """Hypergradient at (x, y*(x))."""

    h: Tree
    error: jax.Array  # 0; infinite if g_yy is not positive definite


def tolerance(dtype: Any) -> float:
    """Return the `error` that counts as solved: precision^(2/3), 2e-5 in float32."""
    return float(jnp.finfo(dtype).eps) ** (2 / 3)


class Oracle(Protocol):
    """Derivatives of f and g on all rows, of one agent or averaged over all."""

    @property
    def rows(self) -> Any: ...  # training rows per derivative of g

    def lower(self, x: Tree, y: Tree) -> Tree:
        """Return g_y."""

    def upper(self, x: Tree, y: Tree) -> tuple[Tree, Tree]:
        """Return f_x and f_y."""

    def cross(self, x: Tree, y: Tree, z: Tree) -> Tree:
        """Return g_xy z."""


@dataclass(frozen=True)
class AgentOracle:
    """Oracle of one agent."""

    problem: Objectives

    @property
    def rows(self) -> Any:
        return self.problem.train.count

    def lower(self, x: Tree, y: Tree) -> Tree:
        return jax.grad(self.problem.g, 1)(x, y, None)

    def upper(self, x: Tree, y: Tree) -> tuple[Tree, Tree]:
        return jax.grad(self.problem.f, (0, 1))(x, y, None)

    def cross(self, x: Tree, y: Tree, z: Tree) -> Tree:
        return jax.vjp(lambda x: self.lower(x, y), x)[1](z)[0]


@dataclass(frozen=True)
class MeanOracle:
    """Oracle of the mean over all agents; `mean(function, ...)` averages function(oracle, ...)."""

    mean: Callable[..., Tree]
    rows: Any

    def lower(self, x: Tree, y: Tree) -> Tree:
        return self.mean(lambda agent, x, y: agent.lower(x, y), x, y)

    def upper(self, x: Tree, y: Tree) -> tuple[Tree, Tree]:
        return self.mean(lambda agent, x, y: agent.upper(x, y), x, y)

    def cross(self, x: Tree, y: Tree, z: Tree) -> Tree:
        return self.mean(lambda agent, x, y, z: agent.cross(x, y, z), x, y, z)


def solve_lower_level(problem: Objectives, x: Tree, y: Tree) -> Solution:
    """Return y*(x) = argmin_y g(x, y) of one agent, from a first guess y."""
    return solve_newton(AgentOracle(problem), x, y)


def hypergradient(problem: Objectives, x: Tree, y: Tree) -> Tree:
    """Return f_x - g_xy [g_yy]^-1 f_y at (x, y) on all rows, eq. (4); eq. (3) at y = y*(x)."""
    return implicit_hypergradient(AgentOracle(problem), x, y)


def solve_newton(oracle: Oracle, x: Tree, y: Tree) -> Solution:
    """Compute y*(x) = argmin_y g(x, y) from a first guess y, by Newton's method with CG.

    Coordinates are scaled where their curvatures differ by orders of magnitude
    (`linear_solvers.row_scales`). A step is halved until ||g_y|| shrinks (along Newton's direction
    it must, because g is strongly convex). Ends when the step is below `tolerance`, when rounding
    prevents further decrease of ||g_y||, or after 50 steps.
    """
    gradient = hoist_invariants(lambda y: oracle.lower(x, y), y)
    scales = linear_solvers.row_scales(jax.linearize(gradient, y)[1], y)
    scaled_norm = lambda value: pytrees.norm(pytrees.multiply(scales, value))
    step_tolerance = tolerance(pytrees.norm(y).dtype)

    def unfinished(carry: Any) -> jax.Array:
        _, _, error, k, is_stuck, _ = carry
        return (k < NEWTON_STEPS) & (error > step_tolerance) & ~is_stuck

    def step(carry: Any) -> Any:
        y, size, _, k, _, (gradients, products) = carry
        value, product = jax.linearize(gradient, y)
        scaled = linear_solvers.scaled_product(product, scales)
        move, iterations = linear_solvers.conjugate_gradient(
            scaled, pytrees.multiply(scales, value), CG_STEPS, step_tolerance
        )
        move = pytrees.multiply(scales, move)

        def is_worse(search: Any) -> jax.Array:
            rate, new, _ = search
            return ~(new < size) & (rate > 1e-6)

        def halve(search: Any) -> Any:
            rate, trials = search[0] / 2, search[2]
            return rate, scaled_norm(gradient(pytrees.axpy(-rate, move, y))), trials + 1

        rate, trials = pytrees.mapped_with((jnp.ones_like(size), jnp.int32(1)), size)
        first = rate, scaled_norm(gradient(pytrees.axpy(-1, move, y))), trials
        rate, new, trials = jax.lax.while_loop(is_worse, halve, first)
        is_stuck = ~(new < size)
        length = pytrees.norm(move)  # 0 if the curvature is not positive: no solution there
        has_no_solution = (length == 0) & (pytrees.norm(value) > 0)
        error = jnp.where(has_no_solution, jnp.inf, length / (1 + pytrees.norm(y)))
        next_y = pytrees.select(is_stuck, y, pytrees.axpy(-rate, move, y))
        counts = gradients + 1 + trials, products + iterations
        return next_y, jnp.where(is_stuck, size, new), error, k + 1, is_stuck, counts

    size = scaled_norm(gradient(y))
    initial = jnp.full_like(size, jnp.inf), jnp.int32(0), (jnp.int32(1), jnp.int32(0))
    error, k, counts = pytrees.mapped_with(initial, size)
    carry = (y, size, error, k, size == 0, counts)
    y, size, error, _, _, (gradients, products) = jax.lax.while_loop(unfinished, step, carry)
    rows = oracle.rows
    products += linear_solvers.SCALE_PROBES
    cost = Cost(samples=rows, gradients=gradients * rows, hvps=products * rows)
    return Solution(y, jnp.where(size == 0, 0, error), cost)


def implicit_hypergradient(oracle: Oracle, x: Tree, y: Tree) -> Tree:
    """Return f_x - g_xy [g_yy]^-1 f_y at (x, y)."""
    return checked_implicit_hypergradient(oracle, x, y).h


def checked_implicit_hypergradient(oracle: Oracle, x: Tree, y: Tree) -> CheckedHypergradient:
    """Return f_x - g_xy [g_yy]^-1 f_y at (x, y), and whether g_yy is invertible.

    If g_yy is singular along a part of f_y, y*(x) is not unique, and f differs between the
    minimizers.
    """
    f_x, f_y = oracle.upper(x, y)
    product = jax.linearize(lambda y: oracle.lower(x, y), y)[1]
    dtype = pytrees.norm(f_y).dtype
    solve = linear_solvers.curvature_aware_solve
    scales = linear_solvers.row_scales(product, y)
    scaled, right_side = (
        linear_solvers.scaled_product(product, scales),
        pytrees.multiply(scales, f_y),
    )
    z, _, relative_curvature = solve(scaled, right_side, CG_STEPS, tolerance(dtype))
    z = pytrees.multiply(scales, z)
    is_singular = relative_curvature <= SINGULAR * jnp.finfo(dtype).eps
    error = jnp.where(is_singular, jnp.inf, 0).astype(dtype)
    return CheckedHypergradient(pytrees.sub(f_x, oracle.cross(x, y, z)), error)
