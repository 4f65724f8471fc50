"""INTERACT (Liu et al., MobiHoc 2022): full local gradients, tracked. Nothing is random.

Rule: [M hi][V].
"""

from ..hypergradient import Hypergradient, conjugate_gradient
from ._auto import Order, Step, Steps, all_rows, choose
from .parts import Loop, Variable
from .parts.directions import implicit
from .parts.estimators import plain
from .parts.moves import local, tracking

__all__ = ["interact"]


def interact(
    alpha: Step = None,
    beta: Step = None,
    batch: int = 64,
    hypergradient: Hypergradient = conjugate_gradient(20),
    order: Order | None = None,
    steps: Steps = "auto",
) -> Loop:
    """`gt_sgd` with p_t and v_t on all of an agent's rows, and a deterministic hypergradient.

    `batch` is not used, and taken so that all methods can be called alike.
    """
    order, s = choose(steps, order, alpha=alpha, beta=beta)
    return Loop(
        implicit(hypergradient),
        plain(full=True),
        x=Variable(s["alpha"], tracking(order)),
        y=Variable(s["beta"], local()),
        batch=all_rows(batch),
        solves=("personal", "none"),
    )
