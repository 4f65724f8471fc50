"""GT-SARAH (Xin et al., 2022; D-GET): periodic full gradients, differences in between."""

from .._composition import Step, Steps, compose_parts
from ..parts import ComposedAlgorithm
from ..parts.communication_rules import Order
from ..parts.directions import gradient
from ..parts.provenance import EXACT, READ, Provenance

__all__ = ["gt_sarah"]

PROVENANCE = Provenance("GT-SARAH (Xin et al., 2022; D-GET)", READ, EXACT)


def gt_sarah(
    alpha: Step = None,
    batch: int = 64,
    period: int | None = None,
    order: Order | None = None,
    steps: Steps = "auto",
) -> ComposedAlgorithm:
    """Run `svr_interact` without a lower level."""
    numbers = {"alpha": alpha}
    return compose_parts(
        gradient(),
        "recursive",
        "gt",
        numbers,
        batch=batch,
        order=order,
        steps=steps,
        period=period,
        update_order="x",
        lower_levels=("none",),
    )
