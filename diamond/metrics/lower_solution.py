"""y*(x) and the exact hypergradient on all rows, for the measures.

Either for one agent with a personal lower level, or for all agents with a common one: then
`MeanOracle` averages their gradients and products for 1/m sum_i g_i.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp

from ..core import linear_solvers, newton, pytrees
from ..core.cost_counter import Cost
from ..core.newton import CG_STEPS, default_tolerance
from ..core.pytrees import Tree
from ..problem import Objectives

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
    """Return y*(x) = argmin_y g(x, y) from a first guess y, by Newton's method with CG."""
    precision = default_tolerance(pytrees.norm(y).dtype)
    found = newton.minimize(lambda y: oracle.lower(x, y), y, precision)
    rows = oracle.rows
    cost = Cost(samples=rows, gradients=found.residuals * rows, hvps=found.products * rows)
    return Solution(found.y, found.error, cost)


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
    scales = linear_solvers.row_scales(product, y)
    z, _, relative_curvature = linear_solvers.scaled_solve(
        product, f_y, scales, CG_STEPS, default_tolerance(dtype)
    )
    is_singular = relative_curvature <= SINGULAR * jnp.finfo(dtype).eps
    error = jnp.where(is_singular, jnp.inf, 0).astype(dtype)
    return CheckedHypergradient(pytrees.sub(f_x, oracle.cross(x, y, z)), error)
