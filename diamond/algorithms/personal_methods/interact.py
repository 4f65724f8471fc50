"""INTERACT (Liu et al., MobiHoc 2022): full local gradients, tracked; deterministic."""

from ...hypergradient import Hypergradient, conjugate_gradient
from .._composition import Step, Steps, check_unused_batch, compose_parts
from ..parts import ComposedAlgorithm
from ..parts.communication_rules import Order
from ..parts.directions import implicit
from ..parts.provenance import ABSTRACT_CERTAIN, EXACT, Provenance

__all__ = ["interact"]

PROVENANCE = Provenance("INTERACT (Liu et al., MobiHoc 2022)", ABSTRACT_CERTAIN, EXACT)


def interact(
    alpha: Step = None,
    beta: Step = None,
    batch: int = 64,
    hypergradient: Hypergradient = conjugate_gradient(20),
    order: Order | None = None,
    steps: Steps = "auto",
) -> ComposedAlgorithm:
    """Run `gt_sgd` with p_t and v_t on all rows, and a deterministic hypergradient.

    `batch` is accepted for a uniform interface and not used.
    """
    numbers = {"alpha": alpha, "beta": beta}
    return compose_parts(
        implicit(hypergradient),
        "full",
        "gt local",
        numbers,
        batch=check_unused_batch(batch),
        order=order,
        steps=steps,
        lower_levels=("personal", "none"),
    )
