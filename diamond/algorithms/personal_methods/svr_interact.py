"""SVR-INTERACT (Liu et al., MobiHoc 2022): periodic full gradients, SPIDER in between."""

from ...hypergradient import Hypergradient, neumann_sum
from .._composition import Step, Steps, compose_parts
from ..parts import ComposedAlgorithm
from ..parts.communication_rules import Order
from ..parts.directions import implicit
from ..parts.provenance import ABSTRACT_CERTAIN, EXACT, Provenance

__all__ = ["svr_interact"]

PROVENANCE = Provenance("SVR-INTERACT (Liu et al., MobiHoc 2022)", ABSTRACT_CERTAIN, EXACT)


def svr_interact(
    alpha: Step = None,
    beta: Step = None,
    batch: int = 64,
    period: int | None = None,
    hypergradient: Hypergradient = neumann_sum(),
    order: Order | None = None,
    steps: Steps = "auto",
) -> ComposedAlgorithm:
    """Take p_t, v_t on all rows if t mod q = 0, else p_t = p_{t-1} + h(t) - h(t-1), v_t likewise.

    q = `period`, by default ceil(sqrt(n)), n the largest agent's training rows (the paper takes the
    same number as the batch). Tracked as in `interact`. The Neumann sum is used in both kinds of
    rounds, so that they have the same bias.
    """
    numbers = {"alpha": alpha, "beta": beta}
    return compose_parts(
        implicit(hypergradient),
        "recursive",
        "gt local",
        numbers,
        batch=batch,
        order=order,
        steps=steps,
        period=period,
        lower_levels=("personal", "none"),
    )
