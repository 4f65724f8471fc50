"""M-SGD: DIAMOND without tracking; on one agent, SUSTAIN (Khanduri et al., 2021)."""

from ..estimate import Momentum
from ..hypergradient import Hypergradient, neumann
from ..schedule import Number, Schedule
from ._auto import Order, Steps, choose
from ._consensus import Consensus
from ._single_loop import SingleLoop

__all__ = ["m_sgd"]


def m_sgd(
    alpha: Schedule | Number | None = None,
    beta: Schedule | Number | None = None,
    eta: Schedule | Number | None = None,
    gamma: Schedule | Number | None = None,
    batch: int = 64,
    hypergradient: Hypergradient = neumann(),
    order: Order | None = None,
    steps: Steps = "auto",
) -> SingleLoop:
    """x_{t+1} = sum_j M_ij x_{j,t} - alpha_t p_t, with p_t, v_t and y_{t+1} as in `diamond`."""
    order, s = choose(steps, order, alpha=alpha, beta=beta, eta=eta, gamma=gamma)
    consensus = Consensus(order, tracking=False)
    estimator = Momentum(s["eta"], s["gamma"])
    return SingleLoop(s["alpha"], s["beta"], estimator, hypergradient, consensus, batch)
