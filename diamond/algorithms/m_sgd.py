"""M-SGD: DIAMOND without tracking; on one agent, SUSTAIN (Khanduri et al., 2021)."""

from ..estimate import Momentum
from ..hypergradient import Hypergradient, neumann
from ..schedule import Number, Schedule, power, schedule, squared
from ._single_loop import SingleLoop

__all__ = ["m_sgd"]


def m_sgd(
    alpha: Schedule | Number = power(0.1),
    beta: Schedule | Number = power(0.1),
    eta: Schedule | Number = squared(0.1, power(1.0)),
    gamma: Schedule | Number = squared(0.1, power(1.0)),
    batch: int = 64,
    hypergradient: Hypergradient = neumann(),
) -> SingleLoop:
    """x_{t+1} = sum_j M_ij x_{j,t} - alpha_t p_t, with p_t, v_t and y_{t+1} as in `diamond`."""
    estimator = Momentum(schedule(eta), schedule(gamma))
    return SingleLoop(schedule(alpha), schedule(beta), estimator, hypergradient, False, batch)
