"""INTERACT (Liu et al., MobiHoc 2022): full local gradients, tracked. Nothing is random."""

from ..estimate import Plain
from ..hypergradient import Hypergradient, conjugate_gradient
from ..schedule import Number, Schedule
from ._auto import Order, Steps, choose
from ._consensus import Consensus
from ._single_loop import SingleLoop

__all__ = ["interact"]


def interact(
    alpha: Schedule | Number | None = None,
    beta: Schedule | Number | None = None,
    hypergradient: Hypergradient = conjugate_gradient(20),
    order: Order | None = None,
    steps: Steps = "auto",
) -> SingleLoop:
    """`gt_sgd` with p_t and v_t on all of an agent's rows, and a deterministic hypergradient."""
    order, s = choose(steps, order, whole=True, alpha=alpha, beta=beta)
    consensus = Consensus(order, tracking=True)
    return SingleLoop(s["alpha"], s["beta"], Plain(True), hypergradient, consensus, 1)
