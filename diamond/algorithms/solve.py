"""The method behind `diamond.solve`: it learns its step sizes while it runs.

Rule: of this project, described in docs/solve.md.
"""

from dataclasses import dataclass, replace
from typing import Any

from ..core import tree
from ..core.whole_numbers import whole
from ..problem import Problem
from ._auto import choose
from .parts import Loop, Variable
from .parts.directions import carried
from .parts.estimators import Average
from .parts.moves import local, tracking

__all__ = ["solve"]


@tree.pytree
@dataclass(frozen=True)
class Solver(Loop):
    """A composed method that tracks y and z as well where all agents share them."""

    def suited(self, problem: Problem) -> Any:
        """The method for this kind of lower level."""
        if problem.lower_level != "common" or self.y is None or self.z is None:
            return super().suited(problem)
        y, z = replace(self.y, move=tracking()), replace(self.z, move=tracking())
        return Loop.suited(replace(self, y=y, z=z), problem)


def solve(batch: int = 64) -> Solver:
    """Gradient tracking of x with learned step sizes; y and z by the work they need.

        p_t = average of f_x(x, y; xi) - g_xy(x, y; zeta) z      y <- y - beta g_y,  z <- z - beta w
        u_t = sum_j M_ij u_{j,t-1} + p_t - p_{t-1}               w = g_yy z - f_y
        x_{t+1} = sum_j M_ij (x_j - alpha_j u_j)

    alpha is learned from the trackers (`diamond.auto.step_rule`), beta = 1 / (1.5 L) from L by a
    product a round with a carried vector. Where z relaxes slowly, the agent solves for its y and z
    by a few conjugate gradients in rounds in which that changes the hypergradient. A y that is
    common to all agents is tracked like x. Nothing is measured before the first round.
    """
    _, s = choose("auto", "atc", alpha=None, beta=None, delta=None, theta=None)
    return Solver(
        carried(),
        Average(s["theta"]),
        x=Variable(s["alpha"], tracking()),
        y=Variable(s["beta"], local()),
        z=Variable(s["delta"], local()),
        batch=whole("batch", batch, 1),
        solves=("personal", "common", "none"),
    )
