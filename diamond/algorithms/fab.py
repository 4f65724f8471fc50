"""FAB (arXiv 2605.06328): a common lower level by gradients only, over one-way, changing links.

Rule: [M mid][V].
"""

from ..numbers.schedule import Number, Schedule
from ._auto import Step, Steps, choose
from .parts import Loop, Variable
from .parts.directions import penalty
from .parts.estimators import plain
from .parts.moves import tracking

__all__ = ["fab"]


def fab(
    alpha: Step = None,
    beta: Step = None,
    delta: Step = None,
    lam: Schedule | Number = 20.0,
    batch: int = 64,
    steps: Steps = "auto",
) -> Loop:
    """The penalty of `f2sa`, all three variables by AB (push-pull); bias of order 1 / lam.

    x, y, z are averages, by weights of the receiver, and their trackers totals, by weights of the
    sender. Where links go both ways it is `dsgda_gt`.
    """
    _, s = choose(steps, "atc", lags=2, y="gt", alpha=alpha, beta=beta, delta=delta)
    return Loop(
        penalty(lam),
        plain(),
        x=Variable(s["alpha"], tracking()),
        y=Variable(s["beta"], tracking()),
        z=Variable(s["delta"], tracking()),
        batch=batch,
        solves=("common",),
    )
