"""The inverse Hessian by conjugate gradients, on blocks of rows or on all of them."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import jax

from ..core import linear_solvers, tree
from ..core.cost import Cost
from ..core.sampling import Sample
from ..core.tree import Tree
from ..core.whole_numbers import whole
from ..problem import Objectives
from .implicit import Implicit, pooled
from .protocol import Point


@tree.pytree
@dataclass(frozen=True)
class ConjugateGradient:
    """z = the `steps`-th CG iterate for g_yy(zeta_1, .., zeta_links) z = b, from zero.

    Or an earlier one: the first with a residual of `tolerance` ||b||; without a tolerance, the one
    after as many steps as b has numbers, which is the solution but for rounding. g_yy is the mean
    over the blocks drawn; without any, over all rows.
    """

    steps: int = field(metadata={"static": True})
    links: int = field(default=1, metadata={"static": True})
    tolerance: float = field(default=0.0, metadata={"static": True})

    @property
    def whole(self) -> bool:
        return self.links == 0

    def __call__(
        self, problem: Objectives, points: Sequence[Point], b: list[Tree], sample: Sample
    ) -> tuple[list[Tree], Cost]:
        products, rows, fresh = pooled(problem, points, sample, self.links)
        size = sum(leaf.size for leaf in jax.tree.leaves(b[0]))
        steps = self.steps if self.tolerance else min(self.steps, size)
        solve = linear_solvers.conjugate_gradient
        solved = [solve(h, b, steps, self.tolerance) for h, b in zip(products, b)]
        return [z for z, _ in solved], Cost(fresh, hvps=sum(k for _, k in solved) * rows)


def conjugate_gradient(steps: int = 10) -> Implicit:
    """At most `steps` CG iterations; all of them on the same rows, without which CG is not CG.

    At most as many as y has numbers too: these many solve the system but for rounding.
    The error shrinks like ((sqrt(kappa) - 1) / (sqrt(kappa) + 1))^steps. No L_g to get wrong. On a
    mini-batch its mean is not that of the full Hessian's inverse: use it with large batches, or on
    all rows (INTERACT).
    """
    if whole("steps", steps) < 1:
        raise ValueError(f"steps = {steps}: conjugate gradients need at least one")
    return Implicit(ConjugateGradient(steps))
