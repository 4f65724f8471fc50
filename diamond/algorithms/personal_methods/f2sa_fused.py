"""F2SA in one stage (ours, after Kwon et al., ICML 2023): three gradients per round."""

from ...core.pytrees import Number
from ...schedules.step_schedules import Schedule
from .._composition import Step, Steps, compose_parts
from ..parts import ComposedAlgorithm
from ..parts.communication_rules import Order
from ..parts.directions import penalty
from ..parts.provenance import PENALIZED, Provenance

__all__ = ["f2sa_fused"]

PROVENANCE = Provenance(
    "F2SA in one stage (ours, after Kwon et al., ICML 2023)",
    "rule of F2SA, all variables at once: ours",
    PENALIZED,
)


def f2sa_fused(
    alpha: Step = None,
    beta: Step = None,
    delta: Step = None,
    lam: Schedule | Number = 20.0,
    batch: int = 64,
    order: Order | None = None,
    steps: Steps = "auto",
) -> ComposedAlgorithm:
    """Move x, y and z of `f2sa` at once, along directions at the same point and on one sample.

    A round takes the gradient of f at z, those of g at y and z, and one exchange, without products:
    the cheapest method for networks. The lower level need not be strongly convex: z selects the
    solution of g that is best for f. The bias is of order 1 / lam, as for `f2sa`.
    """
    numbers = {"alpha": alpha, "beta": beta, "delta": delta}
    return compose_parts(
        penalty(lam),
        "plain",
        "gt local local",
        numbers,
        batch=batch,
        order=order,
        steps=steps,
        update_order="xyz",
    )
