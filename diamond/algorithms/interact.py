"""INTERACT (Liu et al., MobiHoc 2022): full local gradients, tracked. Nothing is random."""

from ..estimate import Plain
from ..hypergradient import Hypergradient, conjugate_gradient
from ..schedule import Number, Schedule, schedule
from ._single_loop import SingleLoop

__all__ = ["interact"]


def interact(
    alpha: Schedule | Number = 0.05,
    beta: Schedule | Number = 0.05,
    hypergradient: Hypergradient = conjugate_gradient(20),
) -> SingleLoop:
    """`gt_sgd` with p_t and v_t on all of an agent's rows, and a deterministic hypergradient."""
    return SingleLoop(schedule(alpha), schedule(beta), Plain(True), hypergradient, True, 1)
