"""SVR-INTERACT (Liu et al., MobiHoc 2022): full gradients now and then, SPIDER in between.

Rule: [M hi].
"""

from ..hypergradient import Hypergradient, neumann_sum
from ._auto import Order, Step, Steps, choose
from .parts import Loop, Variable
from .parts.directions import implicit
from .parts.estimators import recursive
from .parts.moves import local, tracking

__all__ = ["svr_interact"]


def svr_interact(
    alpha: Step = None,
    beta: Step = None,
    batch: int = 64,
    period: int | None = None,
    hypergradient: Hypergradient = neumann_sum(),
    order: Order | None = None,
    steps: Steps = "auto",
) -> Loop:
    """If t mod q = 0: p_t, v_t on all rows; else p_t = p_{t-1} + h(t) - h(t-1), v_t likewise.

    q = `period`, by default ceil(sqrt(n)), n the largest agent's training rows (the paper takes
    the same number as the batch). Tracked as in `interact`. The Neumann sum is used at both kinds
    of rounds, so that they have the same bias.
    """
    order, s = choose(steps, order, alpha=alpha, beta=beta)
    return Loop(
        implicit(hypergradient),
        recursive(period),
        x=Variable(s["alpha"], tracking(order)),
        y=Variable(s["beta"], local()),
        batch=batch,
        solves=("personal", "none"),
    )
