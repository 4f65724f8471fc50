"""Partial gradient f_x alone, the hypergradient where f_y = 0 at y*(x)."""

from collections.abc import Sequence
from dataclasses import dataclass

import jax

from ..core import pytrees
from ..core.cost_counter import Cost
from ..core.pytrees import Tree
from ..core.sampling import Sample
from ..problem import Objectives
from .estimator_interface import Hypergradient, PointXY


@pytrees.pytree
@dataclass(frozen=True)
class PartialGradient(Hypergradient):
    """Estimator f_x(x, y; xi), without a derivative of g."""

    def __call__(
        self, problem: Objectives, points: Sequence[PointXY], sample: Sample
    ) -> tuple[list[Tree], Cost]:
        rows = problem.valid.size(sample.upper)
        gradients = [jax.grad(problem.f)(x, y, sample.upper) for x, y in points]
        return gradients, Cost(rows, len(points) * rows)


def partial() -> PartialGradient:
    """Make the estimator f_x, for minimax problems (g = -f).

    If g = -f, then f_y = -g_y = 0 at y*(x), and g_xy [g_yy]^-1 f_y vanishes with f_y: f_x is the
    hypergradient (Danskin). On other problems x has the bias g_xy [g_yy]^-1 f_y.
    """
    return PartialGradient()
