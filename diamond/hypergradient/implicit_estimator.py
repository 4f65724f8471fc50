"""Implicit hypergradient f_x - g_xy [g_yy]^-1 f_y, eq. (4), with a solver for the inverse."""

from collections.abc import Sequence
from typing import Any

import jax

from ..core import pytrees
from ..core.cost_counter import Cost
from ..core.linear_solvers import Product
from ..core.pytrees import Tree
from ..core.sampling import Sample, Where
from ..problem import Objectives
from .estimator_interface import Hypergradient, LinearSolve, PointXY


@pytrees.pytree
class ImplicitHypergradient(Hypergradient):
    """Estimator f_x(xi) - g_xy(zeta_0) z, where z solves g_yy z = f_y(xi)  (4, 5)."""

    solve: LinearSolve

    @property
    def hessian_batches(self) -> int:
        return self.solve.hessian_batches

    @property
    def uses_all_rows(self) -> bool:
        return self.solve.uses_all_rows

    def __call__(
        self, problem: Objectives, points: Sequence[PointXY], sample: Sample
    ) -> tuple[list[Tree], Cost]:
        gradients, _, cost = self.estimate_with_systems(problem, points, sample)
        return gradients, cost

    def estimate_with_systems(
        self, problem: Objectives, points: Sequence[PointXY], sample: Sample
    ) -> tuple[list[Tree], list[tuple[Tree, Tree]], Cost]:
        """Return one gradient per point, z and f_y of each system g_yy z = f_y, and the cost."""
        extra_samples: Any = 0
        if (
            self.uses_all_rows and sample.lower is not None
        ):  # the caller that draws all rows counts them
            sample, extra_samples = sample.full_below(), problem.train.count
        upper = [jax.grad(problem.f, (0, 1))(x, y, sample.upper) for x, y in points]
        right_sides = [f_y for _, f_y in upper]
        z, solving = self.solve(problem, points, right_sides, sample)
        cross = [jacobian_product(problem, p, sample.cross, z) for p, z in zip(points, z)]
        rows, lower = problem.valid.size(sample.upper), problem.train.size(sample.cross)
        spent = Cost(
            samples=rows + problem.train.count_fresh_rows(sample.cross) + extra_samples,
            gradients=len(points) * rows,
            jvps=len(points) * lower,
        )
        gradients = [pytrees.sub(f_x, c) for (f_x, _), c in zip(upper, cross)]
        return gradients, [*zip(z, right_sides)], pytrees.add(spent, solving)


def hessian_product(problem: Objectives, point: PointXY, where: Where, w: Tree) -> Tree:
    """Return g_yy(x, y; where) w, by one forward pass through the gradient."""
    x, y = point
    return jax.jvp(lambda y: jax.grad(problem.g, 1)(x, y, where), (y,), (w,))[1]


def hessian(problem: Objectives, point: PointXY, where: Where) -> Product:
    """Return w -> g_yy(x, y; where) w; parts that do not depend on w are computed once."""
    x, y = point
    return jax.linearize(lambda y: jax.grad(problem.g, 1)(x, y, where), y)[1]


def pooled_products(
    problem: Objectives, points: Sequence[PointXY], sample: Sample, hessian_batches: int
) -> tuple[list[Product], Any, Any]:
    """Return w -> g_yy w at every point, averaged over the blocks of the chain or all rows.

    Also returns the number of these rows, and how many of them were drawn.
    """
    if sample.chain is None or hessian_batches == 1:
        products = [hessian(problem, point, sample.hessian_batch(0)) for point in points]
        return (
            products,
            problem.train.size(sample.chain),
            problem.train.count_fresh_rows(sample.chain),
        )

    def mean(x: Tree, y: Tree) -> Product:
        gradients = lambda y: jax.vmap(lambda where: jax.grad(problem.g, 1)(x, y, where))(
            sample.chain
        )
        return jax.linearize(lambda y: jax.tree.map(lambda a: a.mean(0), gradients(y)), y)[1]

    rows = hessian_batches * problem.train.batch
    return [mean(*point) for point in points], rows, rows


def jacobian_product(problem: Objectives, point: PointXY, where: Where, z: Tree) -> Tree:
    """Return g_xy(x, y; where) z: the gradient in x of <g_y, z>."""
    x, y = point
    return jax.vjp(lambda x: jax.grad(problem.g, 1)(x, y, where), x)[1](z)[0]
