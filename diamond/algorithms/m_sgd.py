"""M-SGD (Qiu et al., 2023): DIAMOND without tracking; on one agent, SUSTAIN.

Rule: [S].
"""

from ..hypergradient import Hypergradient
from ._auto import Order, Step, Steps, choose, inverted
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
    hypergradient: Hypergradient | None = None,
    order: Order | None = None,
    steps: Steps = "auto",
) -> Loop:
    """x_{t+1} = sum_j M_ij x_{j,t} - alpha_t p_t, with p_t, v_t and y_{t+1} as in `diamond`."""
    hypergradient, newton = inverted(hypergradient, steps, alpha, beta)
    order, s = choose(
        steps, order, newton=newton is not False, alpha=alpha, beta=beta, eta=eta, gamma=gamma
    )
    return Loop(
        implicit(hypergradient),
        Momentum(s["eta"], s["gamma"]),
        x=Variable(s["alpha"], gossip(order)),
        y=Variable(s["beta"], local()),
        batch=batch,
        newton=newton,
        solves=("personal", "none"),
    )
