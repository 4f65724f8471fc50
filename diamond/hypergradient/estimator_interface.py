"""Interfaces of hypergradient estimators, and of the solvers of their linear systems."""

from collections.abc import Sequence

from ..core.cost_counter import Cost
from ..core.pytrees import Tree
from ..core.sampling import Sample
from ..problem import Objectives

PointXY = tuple[Tree, Tree]  # (x, y)


class DrawsRows:
    """What an estimator or a solver says of the training rows that it needs."""

    @property
    def hessian_batches(self) -> int:
        """Blocks of training rows needed beside xi and zeta_0 (zeta_1 .. zeta_K of eq. (5))."""
        return 0

    @property
    def uses_all_rows(self) -> bool:
        """Whether all rows of g are used, regardless of the sample."""
        return False


class Hypergradient(DrawsRows):
    """Estimator: a function of one agent's objectives, of points (x, y) and of ONE sample.

    All points are given at once because they share all randomness, including the depth k: momentum,
    eq. (6), and SPIDER differences rely on that. On `sample.full()` it uses all rows.
    """

    def __call__(
        self, problem: Objectives, points: Sequence[PointXY], sample: Sample
    ) -> tuple[list[Tree], Cost]:
        """Return one gradient per point, and their total cost."""
        raise NotImplementedError


class LinearSolve(DrawsRows):
    """Solver of the linear systems of an implicit hypergradient."""

    def __call__(
        self, problem: Objectives, points: Sequence[PointXY], b: list[Tree], sample: Sample
    ) -> tuple[list[Tree], Cost]:
        """Return z with g_yy z = b for each point, and the cost."""
        raise NotImplementedError
