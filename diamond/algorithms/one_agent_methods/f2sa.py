"""F2SA (Kwon et al., ICML 2023): gradients only, the lower level as a penalty."""

from ...core.pytrees import Number
from ...schedules.step_schedules import Schedule
from .._composition import Step, Steps, compose_parts
from ..parts import ComposedAlgorithm
from ..parts.communication_rules import Order
from ..parts.directions import penalty
from ..parts.provenance import PENALIZED, READ, Provenance

__all__ = ["f2sa"]

PROVENANCE = Provenance(
    "F2SA (Kwon et al., ICML 2023)", READ + " for one agent; ours for several", PENALIZED
)


def f2sa(
    alpha: Step = None,
    beta: Step = None,
    delta: Step = None,
    lam: Schedule | Number = 20.0,
    inner: int = 1,
    batch: int = 64,
    order: Order | None = None,
    steps: Steps = "auto",
) -> ComposedAlgorithm:
    """Move y to argmin g, z to argmin f / lam + g, x along f_x(z) + lam (g_x(z) - g_x(y)).

    The bias is of order 1 / lam; lam may be a schedule. The step of z is for the scaled objective f
    / lam + g, so it need not shrink as lam grows. With several agents x is tracked, y and z are
    personal.
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
        update_order="yz*inner x",
        inner=inner,
    )
