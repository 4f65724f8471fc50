"""Inverse Hessian by conjugate gradients, on blocks of rows or on all rows."""

from collections.abc import Sequence
from dataclasses import field

import jax

from ..core import linear_solvers, pytrees
from ..core.cost_counter import Cost
from ..core.pytrees import Tree
from ..core.sampling import Sample
from ..core.validation import as_int
from ..problem import Objectives
from .estimator_interface import LinearSolve, PointXY
from .implicit_estimator import ImplicitHypergradient, pooled_products


@pytrees.pytree
class ConjugateGradient(LinearSolve):
    """Solver of g_yy(zeta_1, .., zeta_K) z = b: at most `steps` CG iterations from zero.

    CG stops early at a residual of `tolerance` ||b||; without a tolerance, after as many steps as b
    has numbers, which is exact up to rounding. g_yy is the mean over the drawn blocks; without
    blocks, over all rows.
    """

    steps: int = field(metadata={"static": True})
    hessian_batches: int = field(default=1, metadata={"static": True})
    tolerance: float = field(default=0.0, metadata={"static": True})

    @property
    def uses_all_rows(self) -> bool:
        return self.hessian_batches == 0

    def __call__(
        self, problem: Objectives, points: Sequence[PointXY], b: list[Tree], sample: Sample
    ) -> tuple[list[Tree], Cost]:
        products, rows, fresh = pooled_products(problem, points, sample, self.hessian_batches)
        size = sum(leaf.size for leaf in jax.tree.leaves(b[0]))
        steps = self.steps if self.tolerance else min(self.steps, size)
        solve = linear_solvers.conjugate_gradient
        solved = [solve(h, b, steps, self.tolerance) for h, b in zip(products, b)]
        return [z for z, _ in solved], Cost(fresh, hvps=sum(k for _, k in solved) * rows)


def conjugate_gradient(steps: int = 10) -> ImplicitHypergradient:
    """Make an estimator with at most `steps` CG iterations, all on the same rows.

    CG never makes more iterations than y has numbers, which solve the system up to rounding. The
    error shrinks like ((sqrt(kappa) - 1) / (sqrt(kappa) + 1))^steps, without any bound L_g. On a
    mini-batch the estimate is biased, because the mean of inverses is not the inverse of the mean:
    use large batches, or all rows (INTERACT).

    Args:
        steps: maximum number of iterations.

    Returns:
        The estimator.
    """
    if as_int("steps", steps) < 1:
        raise ValueError(f"steps = {steps}: conjugate gradients need at least one")
    return ImplicitHypergradient(ConjugateGradient(steps))
