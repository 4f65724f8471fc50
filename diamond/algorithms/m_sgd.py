"""M-SGD (Qiu et al., 2023): DIAMOND without tracking; on one agent, SUSTAIN.

Rule: [S].
"""

from ..hypergradient import Hypergradient, warm_start
from ._auto import Order, Step, Steps, choose
from .parts import Loop, Variable
from .parts.directions import implicit
from .parts.estimators import Momentum
from .parts.moves import gossip, local

__all__ = ["m_sgd"]


def m_sgd(
    alpha: Step = None,
    beta: Step = None,
    eta: Step = None,
    gamma: Step = None,
    batch: int = 64,
    hypergradient: Hypergradient = warm_start(),
    order: Order | None = None,
    steps: Steps = "auto",
) -> Loop:
    """x_{t+1} = sum_j M_ij x_{j,t} - alpha_t p_t, with p_t, v_t and y_{t+1} as in `diamond`."""
    order, s = choose(steps, order, alpha=alpha, beta=beta, eta=eta, gamma=gamma)
    return Loop(
        implicit(hypergradient),
        Momentum(s["eta"], s["gamma"]),
        x=Variable(s["alpha"], gossip(order)),
        y=Variable(s["beta"], local()),
        batch=batch,
        solves=("personal", "none"),
    )
