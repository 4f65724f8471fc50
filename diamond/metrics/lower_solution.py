"""y*(x) and the exact hypergradient on all rows, for the measures.

Either for one agent with a personal lower level, or for all agents with a common one: then
`Together` averages their gradients and products for 1/m sum_i g_i.
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


class Hypergradient(NamedTuple):
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
class Own:
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
class Together:
    """Oracle of the mean over all agents; `mean(function, ...)` averages function(own, ...)."""

    mean: Callable[..., Tree]
    rows: Any

    def lower(self, x: Tree, y: Tree) -> Tree:
        return self.mean(lambda own, x, y: own.lower(x, y), x, y)

    def upper(self, x: Tree, y: Tree) -> tuple[Tree, Tree]:
        return self.mean(lambda own, x, y: own.upper(x, y), x, y)

    def cross(self, x: Tree, y: Tree, z: Tree) -> Tree:
        return self.mean(lambda own, x, y, z: own.cross(x, y, z), x, y, z)


def solve(problem: Objectives, x: Tree, y: Tree) -> Solution:
    """Return y*(x) = argmin_y g(x, y) of one agent, from a first guess y."""
    return newton(Own(problem), x, y)


def hypergradient(problem: Objectives, x: Tree, y: Tree) -> Tree:
    """Return f_x - g_xy [g_yy]^-1 f_y at (x, y) on all rows, eq. (4); eq. (3) at y = y*(x)."""
    return implicit(Own(problem), x, y)


def newton(oracle: Oracle, x: Tree, y: Tree) -> Solution:
    """Compute y*(x) = argmin_y g(x, y) from a first guess y, by Newton's method with CG.

    A step is halved until ||g_y|| shrinks (along Newton's direction it must, because g is strongly
    convex). Ends when the step is below `tolerance`, when rounding prevents further decrease of
    ||g_y||, or after 50 steps.
    """
    gradient = hoist_invariants(lambda y: oracle.lower(x, y), y)
    small = tolerance(pytrees.norm(y).dtype)

    def unfinished(carry: Any) -> jax.Array:
        _, _, error, k, stuck, _ = carry
        return (k < NEWTON_STEPS) & (error > small) & ~stuck

    def step(carry: Any) -> Any:
        y, size, _, k, _, (gradients, products) = carry
        value, product = jax.linearize(gradient, y)
        move, iterations = linear_solvers.conjugate_gradient(product, value, CG_STEPS, small)

        def worse(search: Any) -> jax.Array:
            rate, new, _ = search
            return ~(new < size) & (rate > 1e-6)

        def halve(search: Any) -> Any:
            rate, tried = search[0] / 2, search[2]
            return rate, pytrees.norm(gradient(pytrees.axpy(-rate, move, y))), tried + 1

        rate, tried = pytrees.mapped_with((jnp.ones_like(size), jnp.int32(1)), size)
        first = rate, pytrees.norm(gradient(pytrees.axpy(-1, move, y))), tried
        rate, new, tried = jax.lax.while_loop(worse, halve, first)
        stuck = ~(new < size)
        length = pytrees.norm(move)  # 0 if the curvature is not positive: no solution there
        lost = (length == 0) & (pytrees.norm(value) > 0)
        error = jnp.where(lost, jnp.inf, length / (1 + pytrees.norm(y)))
        moved = pytrees.select(stuck, y, pytrees.axpy(-rate, move, y))
        spent = gradients + 1 + tried, products + iterations
        return moved, jnp.where(stuck, size, new), error, k + 1, stuck, spent

    size = pytrees.norm(gradient(y))
    begin = jnp.full_like(size, jnp.inf), jnp.int32(0), (jnp.int32(1), jnp.int32(0))
    error, k, spent = pytrees.mapped_with(begin, size)
    carry = (y, size, error, k, size == 0, spent)
    y, size, error, _, _, (gradients, products) = jax.lax.while_loop(unfinished, step, carry)
    rows = oracle.rows
    cost = Cost(samples=rows, gradients=gradients * rows, hvps=products * rows)
    return Solution(y, jnp.where(size == 0, 0, error), cost)


def implicit(oracle: Oracle, x: Tree, y: Tree) -> Tree:
    """Return f_x - g_xy [g_yy]^-1 f_y at (x, y)."""
    return inspected_implicit(oracle, x, y).h


def inspected_implicit(oracle: Oracle, x: Tree, y: Tree) -> Hypergradient:
    """Return f_x - g_xy [g_yy]^-1 f_y at (x, y), and whether g_yy is invertible.

    If g_yy is singular along a part of f_y, y*(x) is not unique, and f differs between the
    minimizers.
    """
    f_x, f_y = oracle.upper(x, y)
    product = jax.linearize(lambda y: oracle.lower(x, y), y)[1]
    kind = pytrees.norm(f_y).dtype
    solve = linear_solvers.curvature_aware_solve
    z, _, seen = solve(product, f_y, CG_STEPS, tolerance(kind))
    flat = SINGULAR * jnp.finfo(kind).eps * seen.largest
    error = jnp.where(seen.least <= flat, jnp.inf, 0).astype(kind)
    return Hypergradient(pytrees.sub(f_x, oracle.cross(x, y, z)), error)
