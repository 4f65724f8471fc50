"""GT-SAGA (Xin et al., 2020): a table of what every block of rows gave, tracked.

Rule: [M hi][V].
"""

from ._auto import Order, Step, Steps, choose
from .parts import Loop, Variable
from .parts.directions import gradient
from .parts.estimators import saga
from .parts.moves import tracking

__all__ = ["gt_saga"]


def gt_saga(
    alpha: Step = None,
    batch: int = 64,
    order: Order | None = None,
    steps: Steps = "auto",
) -> Loop:
    """d(b) - table(b) + mean of the table, b the block of rows drawn, which `batch` must divide."""
    order, s = choose(steps, order, alpha=alpha)
    return Loop(
        gradient(),
        saga(),
        x=Variable(s["alpha"], tracking(order)),
        batch=batch,
        plan="x",
        solves=("none",),
    )
