"""Inverse Hessian by a few gradient steps from the solution of the previous round."""

from collections.abc import Sequence
from dataclasses import field
from typing import Any

import jax

from ..core import pytrees
from ..core.cost_counter import Cost
from ..core.pytrees import Tree
from ..core.sampling import Sample
from ..core.validation import as_int
from ..problem import Objectives
from ..schedules.learned import Learned
from .estimator_interface import LinearSolve, PointXY
from .implicit_estimator import ImplicitHypergradient
from .neumann import make_factor

SOLVER_STEPS = 4


@pytrees.pytree
class WarmStart(LinearSolve):
    """Solver z_{j+1} = z_j + (b - g_yy(zeta_j) z_j) / L, j = 0 .. steps - 1, from a learned z_0."""

    z: Any
    lipschitz: Any  # L
    steps: int = field(metadata={"static": True})

    @property
    def hessian_batches(self) -> int:
        return self.steps

    def __call__(
        self, problem: Objectives, points: Sequence[PointXY], b: list[Tree], sample: Sample
    ) -> tuple[list[Tree], Cost]:
        factor = make_factor(self.lipschitz, problem, points, sample)
        shift = pytrees.scale(1 / self.lipschitz, b)
        step = lambda j, z: pytrees.add(factor(j, z), shift)
        z = jax.lax.fori_loop(0, self.steps, step, [self.z] * len(points))
        rows, fresh = problem.train.size(sample.chain), problem.train.count_fresh_rows(sample.chain)
        return z, Cost(self.steps * fresh, hvps=len(points) * self.steps * rows)


def warm_start(steps: int = SOLVER_STEPS) -> ImplicitHypergradient:
    """Make an estimator with `steps` gradient steps for g_yy z = f_y from the previous z.

    Each step is on its own rows. z persists between rounds like y, so that few steps suffice at any
    condition number: the bias is that of a z that lags behind x, not that of a truncated series. It
    needs a method that learns its numbers: one whose `alpha` or `beta` is not given, or with this
    hypergradient.
    """
    if as_int("steps", steps) < 1:
        raise ValueError(f"steps = {steps}: a warm start needs at least one step")
    return ImplicitHypergradient(WarmStart(Learned("z"), Learned("lipschitz"), steps))
