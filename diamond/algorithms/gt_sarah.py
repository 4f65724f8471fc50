"""GT-SARAH (Xin et al., 2022; D-GET): full gradients now and then, differences in between.

Rule: [S].
"""

from ._auto import Order, Step, Steps, choose
from .parts import Loop, Variable
from .parts.directions import gradient
from .parts.estimators import recursive
from .parts.moves import tracking

__all__ = ["gt_sarah"]


def gt_sarah(
    alpha: Step = None,
    batch: int = 64,
    period: int | None = None,
    order: Order | None = None,
    steps: Steps = "auto",
) -> Loop:
    """`svr_interact` without a lower level."""
    order, s = choose(steps, order, alpha=alpha)
    return Loop(
        gradient(),
        recursive(period),
        x=Variable(s["alpha"], tracking(order)),
        batch=batch,
        plan="x",
        solves=("none",),
    )
