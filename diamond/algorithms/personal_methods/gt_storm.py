"""GT-STORM, GT-HSGD (Zhang et al., 2021; Xin et al., ICML 2021): momentum, tracked."""

from .._composition import Step, Steps, compose_parts
from ..parts import ComposedAlgorithm
from ..parts.communication_rules import Order
from ..parts.directions import gradient
from ..parts.provenance import CERTAIN, EXACT, READ_CODE, Provenance

__all__ = ["gt_storm"]

PROVENANCE = Provenance(
    "GT-STORM, GT-HSGD (Zhang et al., 2021; Xin et al., ICML 2021)",
    f"{CERTAIN}; GT-HSGD {READ_CODE} of DoCoM, which mixes trackers before the step too",
    EXACT,
)


def gt_storm(
    alpha: Step = None,
    eta: Step = None,
    batch: int = 64,
    order: Order | None = None,
    steps: Steps = "auto",
) -> ComposedAlgorithm:
    """Track p_t = f_x(x_t; xi) + (1 - eta_t) (p_{t-1} - f_x(x_{t-1}; xi)), as in `diamond`."""
    numbers = {"alpha": alpha, "eta": eta}
    return compose_parts(
        gradient(),
        "momentum",
        "gt",
        numbers,
        batch=batch,
        order=order,
        steps=steps,
        update_order="x",
        lower_levels=("none",),
    )
