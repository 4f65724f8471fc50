"""DSGDA-GT (optimization-online 28153): gradients only, all three variables tracked.

Rule: [M mid][V].
"""

from ..numbers.schedule import Number, Schedule
from ._auto import Step, Steps, choose
from .parts import Loop, Variable
from .parts.directions import penalty
from .parts.estimators import plain
from .parts.moves import tracking

__all__ = ["dsgda_gt"]


def dsgda_gt(
    alpha: Step = None,
    beta: Step = None,
    delta: Step = None,
    lam: Schedule | Number = 20.0,
    batch: int = 64,
    steps: Steps = "auto",
) -> Loop:
    """The penalty of `f2sa` for a common lower level, all three tracked; bias of order 1 / lam."""
    _, s = choose(steps, "atc", alpha=alpha, beta=beta, delta=delta)
    return Loop(
        penalty(lam),
        plain(),
        x=Variable(s["alpha"], tracking()),
        y=Variable(s["beta"], tracking()),
        z=Variable(s["delta"], tracking()),
        batch=batch,
        solves=("common",),
    )
