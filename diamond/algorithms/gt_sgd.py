"""GT-SGD (Lu et al., 2019, with hypergradients): one mini-batch, tracked.

Rule: [S].
"""

from ..hypergradient import Hypergradient, warm_start
from ._auto import Order, Step, Steps, choose
from .parts import Loop, Variable
from .parts.directions import implicit
from .parts.estimators import plain
from .parts.moves import local, tracking

__all__ = ["gt_sgd"]


def gt_sgd(
    alpha: Step = None,
    beta: Step = None,
    batch: int = 64,
    hypergradient: Hypergradient = warm_start(),
    order: Order | None = None,
    steps: Steps = "auto",
) -> Loop:
    """p_t = h(x_t, y_t; xi_t), v_t = g_y(x_t, y_t; zeta_t); u_t tracks p_t and x, y move as in

    `diamond`.
    """
    order, s = choose(steps, order, alpha=alpha, beta=beta)
    return Loop(
        implicit(hypergradient),
        plain(),
        x=Variable(s["alpha"], tracking(order)),
        y=Variable(s["beta"], local()),
        batch=batch,
        solves=("personal", "none"),
    )
