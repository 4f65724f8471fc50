"""D-SGD (Nedic and Ozdaglar, 2009; Lian et al., 2017), with hypergradients."""

from ..estimate import Plain
from ..hypergradient import Hypergradient, neumann
from ..schedule import Number, Schedule
from ._auto import Order, Steps, choose
from ._consensus import Consensus
from ._single_loop import SingleLoop

__all__ = ["dsgd"]


def dsgd(
    alpha: Schedule | Number | None = None,
    beta: Schedule | Number | None = None,
    batch: int = 64,
    hypergradient: Hypergradient = neumann(),
    order: Order | None = None,
    steps: Steps = "auto",
) -> SingleLoop:
    """x_{t+1} = sum_j M_ij x_{j,t} - alpha_t h(x_t, y_t; xi_t), y_{t+1} = y_t - beta_t g_y."""
    order, s = choose(steps, order, alpha=alpha, beta=beta)
    consensus = Consensus(order, tracking=False)
    return SingleLoop(s["alpha"], s["beta"], Plain(False), hypergradient, consensus, batch)
