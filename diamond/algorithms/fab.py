"""FAB (arXiv 2605.06328): a common lower level by gradients only, over one-way, changing links.

Rule: [M mid][V].
"""

from ..numbers.schedule import Number, Schedule
from ._auto import Step, Steps
from .dsgda_gt import dsgda_gt
from .parts import Loop

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
    return dsgda_gt(alpha, beta, delta, lam, batch, steps)
