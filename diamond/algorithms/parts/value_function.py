"""Directions for lower levels that are merely convex, or not convex.

    moreau       x: f_x + c (g_x(y) - g_x(z))   y: f_y / c + g_y - (y - z) / gamma
                                                z: g_y(z) + (z - y) / gamma
    barrier      x: f_x + lam (g_x(y) - g_x(y'))    y: f_y + lam g_y
    regularized  x: f_x - g_xy z    y: g_y + mu_t y    z: (g_yy + mu_t) z - f_y

z of `moreau` converges to the proximal point of g at y. y' of `barrier` is y after a few gradient
steps on g, and lam is chosen in every round such that g - g(y') decreases (`Barrier`). The weight
mu_t of `regularized` vanishes.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from ...core import pytrees
from ...core.cost_counter import Cost
from ...core.pytrees import Number, Tree
from ...core.sampling import Sample
from ...problem import Objectives
from ...schedules.deferred import Deferred
from ...schedules.step_schedules import Schedule, step_factor
from .directions import Carried, Directions, DirectionsAndCost, is_large, one_pass
from .variables import STATIC, Point

TINY = 1e-30


@pytrees.pytree
@dataclass(frozen=True)
class Moreau(Directions):
    """Directions of the penalty c (g - v), with v the Moreau envelope of g in y."""

    c: Schedule
    gamma: Number
    upper_variables = "xy"
    allows_solved_lower_level = False
    calls = "f, 2 g"

    def start(self, x: Tree, y: Tree) -> Point:
        return Point(x, y, y)

    def _cost(self, problem: Objectives, sample: Sample, names: str, points: int) -> Cost:
        f, g = problem.valid.size(sample.upper), problem.train.size(sample.lower)
        f = f if "x" in names or "y" in names else 0
        copies = ("x" in names or "y" in names) + ("x" in names or "z" in names)
        return Cost(f + g, points * (f + copies * g))

    def upper_and_lower_parts(
        self, problem: Objectives, point: Point, sample: Sample, names: str, t: Number
    ) -> tuple[Point, Point, Cost]:
        def both(loss: Callable[..., Any], copy: Tree, where: Any) -> tuple[Tree, Tree]:
            work = lambda rows: jax.grad(loss, (0, 1))(point.x, copy, rows)
            result: tuple[Tree, Tree] = one_pass(work, where, t) if large else work(where)
            return result

        c, large = self.c(t), is_large(point.y)
        f_x, f_y = both(problem.f, point.y, sample.upper)
        y_x, y_y = both(problem.g, point.y, sample.lower)
        z_x, z_y = both(problem.g, point.z, sample.lower)
        pull = pytrees.scale(1 / self.gamma, pytrees.sub(point.y, point.z))
        upper = Point(f_x, pytrees.scale(1 / c, f_y), pytrees.zeros(point.z))
        difference = pytrees.scale(c, pytrees.sub(y_x, z_x))
        lower = Point(difference, pytrees.sub(y_y, pull), pytrees.sub(z_y, pull))
        return upper.only(names), lower.only(names), self._cost(problem, sample, names, 1)


def positive_gamma(gamma: Number) -> Number:
    """Check the gamma of a Moreau envelope."""
    if (gamma := step_factor("gamma", gamma)) == 0:
        raise ValueError("gamma = 0: the Moreau envelope needs a positive gamma, such as 1.0")
    return gamma


@pytrees.pytree
@dataclass(frozen=True)
class Barrier(Directions):
    """Directions grad f + lam grad q of x and y, with q = g - g(y') and y' constant.

    lam = max(eta - <grad f, grad q> / ||grad q||^2, 0) makes <grad q, direction> at least
    eta ||grad q||^2, so that q decreases (the dynamic barrier). y' are `inner` steps from y. With
    several `agents` the products are those of the y parts: x does not move along the agent's own
    direction then, and only with these parts lam g_y tends to -f_y for every agent.
    """

    delta: Schedule
    eta: Number
    inner: int = field(metadata=STATIC)
    agents: Number | Deferred
    allows_solved_lower_level = False
    calls = "f, inner + 2 g"
    variables: ClassVar[str] = "xy"
    splits_levels: ClassVar[bool] = False

    def start(self, x: Tree, y: Tree) -> Point:
        return Point(x, y)

    def __call__(
        self, problem: Objectives, points: Sequence[Point], sample: Sample, names: str, t: Number
    ) -> DirectionsAndCost:
        f, g = problem.valid.size(sample.upper), problem.train.size(sample.lower)
        cost = Cost(f + g, len(points) * (f + (self.inner + 2) * g))
        return [self._at(problem, point, sample, t).only(names) for point in points], cost

    def _at(self, problem: Objectives, point: Point, sample: Sample, t: Number) -> Point:
        x, y, step = point.x, point.y, self.delta(t)

        def descend(_: Number, y: Tree) -> Tree:
            return pytrees.axpy(-step, jax.grad(problem.g, 1)(x, y, sample.lower), y)

        approached = jax.lax.fori_loop(0, self.inner, descend, y)
        f = jax.grad(problem.f, (0, 1))(x, y, sample.upper)
        g_x, g_y = jax.grad(problem.g, (0, 1))(x, y, sample.lower)
        q = pytrees.sub(g_x, jax.grad(problem.g)(x, approached, sample.lower)), g_y
        q_of_products = pytrees.scale(jnp.where(self.agents == 1, 1.0, 0.0), q[0]), q[1]
        size = pytrees.dot(q_of_products, q_of_products)
        lam = jnp.maximum(self.eta - pytrees.dot(f, q_of_products) / (size + TINY), 0.0)
        lam = jnp.where(size > TINY, lam, 0.0)
        return Point(*pytrees.axpy(lam, q, f))


@pytrees.pytree
@dataclass(frozen=True)
class Regularized(Directions):
    """Directions of `Carried` for g + mu_t ||y||^2 / 2."""

    mu: Schedule
    allows_solved_lower_level = False
    calls = "f, g, g_yy, g_xy"

    def start(self, x: Tree, y: Tree) -> Point:
        return Carried().start(x, y)

    def _ridge(self, point: Point, names: str, t: Number) -> Point:
        mu = self.mu(t)
        ridge = Point(
            pytrees.zeros(point.x), pytrees.scale(mu, point.y), pytrees.scale(mu, point.z)
        )
        return ridge.only(names)

    def _cost(self, problem: Objectives, sample: Sample, names: str, points: int) -> Cost:
        return Carried()._cost(problem, sample, names, points)

    def upper_and_lower_parts(
        self, problem: Objectives, point: Point, sample: Sample, names: str, t: Number
    ) -> tuple[Point, Point, Cost]:
        upper, lower, cost = Carried().upper_and_lower_parts(problem, point, sample, names, t)
        return upper, pytrees.add(lower, self._ridge(point, names, t)), cost
