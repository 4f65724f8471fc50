"""The method behind `diamond.solve`: it learns its step sizes during the run.

Rule: of this project, described in docs/explanation/step_sizes.md.
"""

from dataclasses import dataclass, replace
from typing import Any

from ..auto.adaptive_optimizers import REST
from ..core import pytrees
from ..core.validation import as_int
from ..problem import Problem
from ..schedules.step_schedules import AtLeast, Delayed
from ._composition import WEIGHT, choose
from .parts import ComposedAlgorithm, Variable
from .parts.communication import local, tracking
from .parts.directions import carried, penalty
from .parts.estimators import Average

__all__ = ["solve"]

LAM = 20.0  # weight of the penalty, where the lower level is not solved for


@pytrees.pytree
@dataclass(frozen=True)
class Solver(ComposedAlgorithm):
    """A composed method that also tracks y and z if all agents share them."""

    needs_strong_convexity = False  # it takes other directions where there is none

    def specialize(self, problem: Problem) -> Any:
        """Return the method for this kind of lower level."""
        if problem.lower_level != "none" and not problem.has_lower_solution:
            directions, estimator = penalty(LAM), Average(AtLeast(0.1, Delayed(WEIGHT, REST)))
            first_order = replace(self, directions=directions, estimator=estimator)
            return first_order._specialize(problem)
        return self._specialize(problem)

    def _specialize(self, problem: Problem) -> Any:
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

    If the lower level is large or not strongly convex, directions are those of the penalty of
    `f2sa`, all in one stage, with gradients only. x then rests for 20 rounds and moves by distance
    over gradients, y and z move by Adam (`diamond.auto.adaptive_optimizers`).
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
