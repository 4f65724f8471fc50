"""SUN-DSBO (Ma et al., 2026, arXiv 2601.22682): a common lower level that is not convex."""

from typing import Literal

from ...core.pytrees import Number
from ...schedules.step_schedules import Schedule, power, schedule
from .._composition import Step, Steps, compose_parts
from ..parts import ComposedAlgorithm
from ..parts.communication_rules import Order
from ..parts.provenance import PENALIZED, Provenance
from ..parts.value_function import Moreau, positive_gamma

__all__ = ["sun_dsbo"]

PROVENANCE = Provenance(
    "SUN-DSBO (Ma et al., 2026, arXiv 2601.22682)",
    "abstract and public reviews, which have its minimax problem and the tracking of all three "
    "directions; that all three move at once is ours",
    PENALIZED,
)


def sun_dsbo(
    alpha: Step = None,
    beta: Step = None,
    delta: Step = None,
    c: Schedule | Number = power(10.0, 1.0, -0.25),
    gamma: Number = 1.0,
    communication: Literal["gt", "gossip", "ed", "extra"] = "gt",
    batch: int = 64,
    order: Order | None = None,
    steps: Steps = "auto",
) -> ComposedAlgorithm:
    """Move all variables of `meha` over the network, for a common lower level of any kind.

    min_{x, y} max_z of f / c + g(x, y) - g(x, z) - ||z - y||^2 / (2 gamma), means over the agents:

        x along f_x(x, y) + c (g_x(x, y) - g_x(x, z)), alpha is that of the paper times 1 / c
        y along f_y(x, y) / c + g_y(x, y) - (y - z) / gamma
        z along g_y(x, z) + (z - y) / gamma

    `communication` is that of all three: "gt" is SUN-DSBO-GT, "gossip" SUN-DSBO-SE, with a bias of
    the order of the steps if agents differ. c is 1 / mu of the paper; the bias is of order 1 / c.
    gamma must be below 1 / rho if g has curvature as low as -rho.
    """
    numbers = {"alpha": alpha, "beta": beta, "delta": delta}
    return compose_parts(
        Moreau(schedule(c, "c"), positive_gamma(gamma)),
        "plain",
        " ".join([communication] * 3),
        numbers,
        batch=batch,
        order=order,
        steps=steps,
        lower_levels=("common",),
    )
