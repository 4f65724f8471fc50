"""GT-SGD (Lu et al., 2019): D-SGD with gradient tracking, with hypergradients."""

from ..estimate import Plain
from ..hypergradient import Hypergradient, neumann
from ..schedule import Number, Schedule, power, schedule
from ._single_loop import SingleLoop

__all__ = ["gt_sgd"]


def gt_sgd(
    alpha: Schedule | Number = power(0.1),
    beta: Schedule | Number = power(0.1),
    batch: int = 64,
    hypergradient: Hypergradient = neumann(),
) -> SingleLoop:
    """p_t = h(x_t, y_t; xi_t), u_t = sum_j M_ij u_{j,t-1} + p_t - p_{t-1}, x moved along u_t."""
    return SingleLoop(schedule(alpha), schedule(beta), Plain(False), hypergradient, True, batch)
