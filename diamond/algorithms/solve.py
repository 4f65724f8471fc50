"""The method behind `diamond.solve`: it learns its step sizes during the run.

Rule: of this project, described in docs/explanation/step_sizes.md.
"""

from dataclasses import dataclass, replace
from typing import Any

from ..core import pytrees
from ..core.validation import as_int
from ..problem import Problem
from ._composition import choose
from .parts import ComposedAlgorithm, Variable
from .parts.communication import local, tracking
from .parts.directions import carried
from .parts.estimators import Average

__all__ = ["solve"]


@pytrees.pytree
@dataclass(frozen=True)
class Solver(ComposedAlgorithm):
    """A composed method that also tracks y and z if all agents share them."""

    def specialize(self, problem: Problem) -> Any:
        """Return the method for this kind of lower level."""
        if problem.lower_level != "common" or self.y is None or self.z is None:
            return super().specialize(problem)
        y, z = replace(self.y, communication=tracking()), replace(self.z, communication=tracking())
        return ComposedAlgorithm.specialize(replace(self, y=y, z=z), problem)


def solve(batch: int = 64) -> Solver:
    """Track x with learned step sizes; update y and z by steps or local solutions.

        p_t = average of f_x(x, y; xi) - g_xy(x, y; zeta) z      y <- y - beta g_y,  z <- z - beta w
        u_t = sum_j M_ij u_{j,t-1} + p_t - p_{t-1}               w = g_yy z - f_y
        x_{t+1} = sum_j M_ij (x_j - alpha_j u_j)

    alpha is learned from the trackers (`diamond.auto.step_rule`), beta = 1 / (1.5 L) with L from
    one power iteration step per round. If z relaxes slowly, the agent solves for y and z by a few
    conjugate gradient steps in rounds where that changes the hypergradient. A common y is tracked
    like x. Nothing is measured before the first round.
    """
    _, s = choose("auto", "atc", alpha=None, beta=None, delta=None, theta=None)
    return Solver(
        carried(),
        Average(s["theta"]),
        x=Variable(s["alpha"], tracking()),
        y=Variable(s["beta"], local()),
        z=Variable(s["delta"], local()),
        batch=as_int("batch", batch, 1),
        lower_levels=("personal", "common", "none"),
    )
