"""D-SGD (Nedic and Ozdaglar, 2009; Lian et al., 2017), with hypergradients."""

from ..estimate import Plain
from ..hypergradient import Hypergradient, neumann
from ..schedule import Number, Schedule, power, schedule
from ._single_loop import SingleLoop

__all__ = ["dsgd"]


def dsgd(
    alpha: Schedule | Number = power(0.1),
    beta: Schedule | Number = power(0.1),
    batch: int = 64,
    hypergradient: Hypergradient = neumann(),
) -> SingleLoop:
    """x_{t+1} = sum_j M_ij x_{j,t} - alpha_t h(x_t, y_t; xi_t), y_{t+1} = y_t - beta_t g_y."""
    return SingleLoop(schedule(alpha), schedule(beta), Plain(False), hypergradient, False, batch)
