"""INTERACT (Liu et al., MobiHoc 2022): full local gradients, tracked. Nothing is random.

Rule: [M hi][V].
"""

from ..hypergradient import Hypergradient, conjugate_gradient
from ._auto import Order, Step, Steps, choose
from .parts import Loop, Variable
from .parts.directions import implicit
from .parts.estimators import plain
from .parts.moves import local, tracking

__all__ = ["interact"]


def interact(
    alpha: Step = None,
    beta: Step = None,
    hypergradient: Hypergradient = conjugate_gradient(20),
    order: Order | None = None,
    steps: Steps = "auto",
) -> Loop:
    """`gt_sgd` with p_t and v_t on all of an agent's rows, and a deterministic hypergradient."""
    order, s = choose(steps, order, alpha=alpha, beta=beta)
    return Loop(
        implicit(hypergradient),
        plain(full=True),
        x=Variable(s["alpha"], tracking(order)),
        y=Variable(s["beta"], local()),
        batch=1,
        solves=("personal", "none"),
    )
