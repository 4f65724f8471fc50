"""GT-SGD (Lu et al., 2019): D-SGD with gradient tracking, with hypergradients."""

from ..estimate import Plain
from ..hypergradient import Hypergradient, neumann
from ..schedule import Number, Schedule
from ._auto import Order, Steps, choose
from ._consensus import Consensus
from ._single_loop import SingleLoop

__all__ = ["gt_sgd"]


def gt_sgd(
    alpha: Schedule | Number | None = None,
    beta: Schedule | Number | None = None,
    batch: int = 64,
    hypergradient: Hypergradient = neumann(),
    order: Order | None = None,
    steps: Steps = "auto",
) -> SingleLoop:
    """p_t = h(x_t, y_t; xi_t), u_t = sum_j M_ij u_{j,t-1} + p_t - p_{t-1}, x moved along u_t."""
    order, s = choose(steps, order, alpha=alpha, beta=beta)
    consensus = Consensus(order, tracking=True)
    return SingleLoop(s["alpha"], s["beta"], Plain(False), hypergradient, consensus, batch)
