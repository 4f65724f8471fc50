"""The inverse Hessian exactly, formed and solved: the reference."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import jax

from ..core import linear_solvers, tree
from ..core.cost import Cost
from ..core.sampling import Sample
from ..core.tree import Tree
from ..problem import Objectives
from .implicit import Implicit, hessian
from .protocol import Point


@tree.pytree
@dataclass(frozen=True)
class Dense:
    """z = [g_yy(zeta_1)]^-1 b, g_yy formed column by column."""

    links: int = field(default=1, metadata={"static": True})

    def __call__(
        self, problem: Objectives, points: Sequence[Point], b: list[Tree], sample: Sample
    ) -> tuple[list[Tree], Cost]:
        where = sample.link(0)
        z = [linear_solvers.dense(hessian(problem, p, where), b) for p, b in zip(points, b)]
        size = sum(leaf.size for leaf in jax.tree.leaves(b[0]))
        rows = problem.train.size(where)
        return z, Cost(problem.train.fresh(where), hvps=len(points) * size * rows)


def exact() -> Implicit:
    """Eq. (4) to rounding, for y of up to a few hundred numbers; costs dim(y) Hessian-products."""
    return Implicit(Dense())
