"""What a hypergradient estimator is."""

from collections.abc import Sequence
from typing import Protocol

from ..core.cost import Cost
from ..core.sampling import Sample
from ..core.tree import Tree
from ..problem import Objectives

Point = tuple[Tree, Tree]  # (x, y)


class Hypergradient(Protocol):
    """A function of one agent's objectives, of points (x, y) and of ONE sample.

    It takes all points at once because they share everything random, the depth k too: that is what
    momentum, eq. (6), and SPIDER differences live on. `links` is how many blocks of training rows
    it wants beside xi and zeta_0 (zeta_1 .. zeta_K of eq. (5)). On `sample.full()` it uses all
    rows. Returns one gradient a point, and what they cost together.
    """

    @property
    def links(self) -> int: ...

    def __call__(
        self, problem: Objectives, points: Sequence[Point], sample: Sample
    ) -> tuple[list[Tree], Cost]: ...
