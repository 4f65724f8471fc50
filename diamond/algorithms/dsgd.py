"""D-SGD (Nedic and Ozdaglar, 2009; Lian et al., 2017; with hypergradients): one mini-batch.

Rule: [S].
"""

from ..hypergradient import Hypergradient, warm_start
from ._auto import Order, Step, Steps, choose
from .parts import Loop, Variable
from .parts.directions import implicit
from .parts.estimators import plain
from .parts.moves import gossip, local

__all__ = ["dsgd"]


def dsgd(
    alpha: Step = None,
    beta: Step = None,
    batch: int = 64,
    hypergradient: Hypergradient = warm_start(),
    order: Order | None = None,
    steps: Steps = "auto",
) -> Loop:
    """x_{t+1} = sum_j M_ij x_{j,t} - alpha_t h(x_t, y_t; xi_t), y_{t+1} = y_t - beta_t g_y(zeta_t).

    Where agents differ, x has a bias of order alpha.
    """
    order, s = choose(steps, order, alpha=alpha, beta=beta)
    return Loop(
        implicit(hypergradient),
        plain(),
        x=Variable(s["alpha"], gossip(order)),
        y=Variable(s["beta"], local()),
        batch=batch,
        solves=("personal", "none"),
    )
