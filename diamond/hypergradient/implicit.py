"""f_x - g_xy [g_yy]^-1 f_y: eq. (4), the inverse left to a solver."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import jax

from ..core import tree
from ..core.cost import Cost
from ..core.linear_solvers import Product
from ..core.sampling import Sample, Where
from ..core.tree import Tree
from ..problem import Objectives
from .protocol import Point


class Solve(Protocol):
    """z with g_yy z = b, roughly, at each point; `links` blocks of rows for g_yy."""

    @property
    def links(self) -> int: ...

    def __call__(
        self, problem: Objectives, points: Sequence[Point], b: list[Tree], sample: Sample
    ) -> tuple[list[Tree], Cost]: ...


@tree.pytree
@dataclass(frozen=True)
class Implicit:
    """f_x(xi) - g_xy(zeta_0) z, where z solves g_yy z = f_y(xi)  (4, 5)."""

    solve: Any  # a Solve

    @property
    def links(self) -> int:
        return self.solve.links

    def __call__(
        self, problem: Objectives, points: Sequence[Point], sample: Sample
    ) -> tuple[list[Tree], Cost]:
        upper = [jax.grad(problem.f, (0, 1))(x, y, sample.upper) for x, y in points]
        z, solving = self.solve(problem, points, [f_y for _, f_y in upper], sample)
        cross = [jacobian_product(problem, p, sample.cross, z) for p, z in zip(points, z)]
        rows, lower = problem.valid.size(sample.upper), problem.train.size(sample.cross)
        spent = Cost(
            samples=rows + problem.train.fresh(sample.cross),
            gradients=len(points) * rows,
            jvps=len(points) * lower,
        )
        return [tree.sub(f_x, c) for (f_x, _), c in zip(upper, cross)], tree.add(spent, solving)


def hessian_product(problem: Objectives, point: Point, where: Where, w: Tree) -> Tree:
    """g_yy(x, y; where) w, by one forward pass through the gradient."""
    x, y = point
    return jax.jvp(lambda y: jax.grad(problem.g, 1)(x, y, where), (y,), (w,))[1]


def hessian(problem: Objectives, point: Point, where: Where) -> Product:
    """w -> g_yy(x, y; where) w; what does not depend on w is computed once."""
    x, y = point
    return jax.linearize(lambda y: jax.grad(problem.g, 1)(x, y, where), y)[1]


def jacobian_product(problem: Objectives, point: Point, where: Where, z: Tree) -> Tree:
    """g_xy(x, y; where) z: the gradient in x of <g_y, z>."""
    x, y = point
    return jax.vjp(lambda x: jax.grad(problem.g, 1)(x, y, where), x)[1](z)[0]
