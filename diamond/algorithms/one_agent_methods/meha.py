"""MEHA (Liu et al., ICML 2024): gradients only, for a lower level that is not convex."""

from ...core.pytrees import Number
from ...schedules.step_schedules import Schedule, power, schedule
from .._composition import Step, Steps, compose_parts
from ..parts import ComposedAlgorithm
from ..parts.communication_rules import Order
from ..parts.provenance import PENALIZED, READ, Provenance
from ..parts.value_function import Moreau, positive_gamma

__all__ = ["meha"]

PROVENANCE = Provenance(
    "MEHA (Liu et al., ICML 2024)", READ + " for one agent; ours for several", PENALIZED
)


def meha(
    alpha: Step = None,
    beta: Step = None,
    delta: Step = None,
    c: Schedule | Number = power(10.0, 1.0, -0.25),
    gamma: Number = 1.0,
    batch: int = 64,
    order: Order | None = None,
    steps: Steps = "auto",
) -> ComposedAlgorithm:
    """Penalize g by its Moreau envelope, v(x, y) = min_z g(x, z) + ||z - y||^2 / (2 gamma).

        z <- z - delta (g_y(x, z) + (z - y) / gamma)
        x <- x - alpha u,  u tracks f_x(x, y) + c (g_x(x, y) - g_x(x, z))
        y <- y - beta (f_y(x, y) / c + g_y(x, y) - (y - z) / gamma)

    The constraint g <= v holds exactly where g_y = 0, so the lower level may have many solutions or
    stationary points: y selects the one that is best for f. gamma must be below 1 / rho if g has
    curvature as low as -rho; c is the weight of the penalty, by default 10 (1 + t)^(1/4), and the
    bias is of order 1 / c. alpha is that of the paper times 1 / c.
    """
    numbers = {"alpha": alpha, "beta": beta, "delta": delta}
    return compose_parts(
        Moreau(schedule(c, "c"), positive_gamma(gamma)),
        "plain",
        "gt local local",
        numbers,
        batch=batch,
        order=order,
        steps=steps,
        update_order="z x y",
    )
