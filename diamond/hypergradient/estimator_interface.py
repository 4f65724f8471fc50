"""Interface of hypergradient estimators."""

from collections.abc import Sequence
from typing import Protocol

from ..core.cost_counter import Cost
from ..core.pytrees import Tree
from ..core.sampling import Sample
from ..problem import Objectives

PointXY = tuple[Tree, Tree]  # (x, y)


class Hypergradient(Protocol):
    """Estimator: a function of one agent's objectives, of points (x, y) and of ONE sample.

    All points are given at once because they share all randomness, including the depth k: momentum,
    eq. (6), and SPIDER differences rely on that. `hessian_batches` is the number of blocks
    of training rows needed beside xi and zeta_0 (zeta_1 .. zeta_K of eq. (5)). On `sample.full()`
    it uses all rows. Returns one gradient per point, and their total cost.
    """

    @property
    def hessian_batches(self) -> int: ...

    def __call__(
        self, problem: Objectives, points: Sequence[PointXY], sample: Sample
    ) -> tuple[list[Tree], Cost]: ...
