"""Momentum tracking (Takezawa et al., TMLR 2023): heavy-ball momentum, tracked."""

from .._composition import Step, Steps, compose_parts
from ..parts import ComposedAlgorithm
from ..parts.communication_rules import Order
from ..parts.directions import gradient
from ..parts.provenance import EXACT, READ_CODE, Provenance

__all__ = ["momentum_tracking"]

PROVENANCE = Provenance(
    "Momentum tracking (Takezawa et al., TMLR 2023)",
    READ_CODE + " of its authors; the momentum is an average: alpha is that of the paper over "
    "theta; it begins without means over all agents",
    EXACT,
)


def momentum_tracking(
    alpha: Step = None,
    theta: Step = None,
    batch: int = 64,
    order: Order | None = None,
    steps: Steps = "auto",
) -> ComposedAlgorithm:
    """Track r_t = (1 - theta) r_{t-1} + theta f_x(x_t; xi) by u_t."""
    numbers = {"alpha": alpha, "theta": theta}
    return compose_parts(
        gradient(),
        "average",
        "gt",
        numbers,
        batch=batch,
        order=order,
        steps=steps,
        update_order="x",
        lower_levels=("none",),
    )
