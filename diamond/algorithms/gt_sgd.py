"""GT-SGD (Lu et al., 2019, with hypergradients): one mini-batch, tracked.

Rule: [S].
"""

from ..hypergradient import Hypergradient
from ._auto import Order, Step, Steps, choose, inverted
from .parts import Loop, Variable
from .parts.directions import implicit
from .parts.estimators import plain
from .parts.moves import local, tracking

__all__ = ["gt_sgd"]


def gt_sgd(
    alpha: Step = None,
    beta: Step = None,
    batch: int = 64,
    hypergradient: Hypergradient | None = None,
    order: Order | None = None,
    steps: Steps = "auto",
) -> Loop:
    """p_t = h(x_t, y_t; xi_t), v_t = g_y(x_t, y_t; zeta_t); u_t tracks p_t and x, y move as in

    `diamond`.
    """
    hypergradient, newton = inverted(hypergradient, steps, alpha, beta)
    order, s = choose(steps, order, newton=newton is not False, alpha=alpha, beta=beta)
    return Loop(
        implicit(hypergradient),
        plain(),
        x=Variable(s["alpha"], tracking(order)),
        y=Variable(s["beta"], local()),
        batch=batch,
        newton=newton,
        solves=("personal", "none"),
    )
