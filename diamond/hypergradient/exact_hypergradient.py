"""Exact inverse Hessian, formed and solved: the reference."""

from collections.abc import Sequence
from dataclasses import field

import jax

from ..core import linear_solvers, pytrees
from ..core.cost_counter import Cost
from ..core.pytrees import Tree
from ..core.sampling import Sample
from ..problem import Objectives
from .estimator_interface import LinearSolve, PointXY
from .implicit_estimator import ImplicitHypergradient, pooled_products


@pytrees.pytree
class Dense(LinearSolve):
    """Solver z = [g_yy(zeta_1, .., zeta_K)]^-1 b, with g_yy formed column by column.

    g_yy is the mean over the drawn blocks; without blocks, over all rows.
    """

    hessian_batches: int = field(default=1, metadata={"static": True})

    @property
    def uses_all_rows(self) -> bool:
        return self.hessian_batches == 0

    def __call__(
        self, problem: Objectives, points: Sequence[PointXY], b: list[Tree], sample: Sample
    ) -> tuple[list[Tree], Cost]:
        products, rows, fresh = pooled_products(problem, points, sample, self.hessian_batches)
        z = [linear_solvers.dense_solve(product, b) for product, b in zip(products, b)]
        size = sum(leaf.size for leaf in jax.tree.leaves(b[0]))
        return z, Cost(fresh, hvps=len(points) * size * rows)


def exact() -> ImplicitHypergradient:
    """Make the estimator of eq. (4), exact up to rounding, at dim(y) Hessian-vector products.

    For y of up to a few hundred numbers.
    """
    return ImplicitHypergradient(Dense())
