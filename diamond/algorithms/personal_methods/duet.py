"""DUET (Qin et al., ICLR 2025): a vanishing regularization of the lower level."""

from ...core.pytrees import Number
from ...schedules.step_schedules import Schedule, power, schedule
from .._composition import Step, Steps, compose_parts
from ..parts import ComposedAlgorithm
from ..parts.communication_rules import Order
from ..parts.provenance import EXACT, Provenance
from ..parts.value_function import Regularized

__all__ = ["duet"]

PROVENANCE = Provenance(
    "DUET (Qin et al., ICLR 2025)",
    "abstract and public reviews read; without its projections",
    EXACT,
)


def duet(
    alpha: Step = None,
    beta: Step = None,
    delta: Step = None,
    mu: Schedule | Number = power(1.0, 10.0, 0.5),
    batch: int = 64,
    order: Order | None = None,
    steps: Steps = "auto",
) -> ComposedAlgorithm:
    """Solve the lower level g + mu_t ||y||^2 / 2, with mu_t falling to 0, for a merely convex g.

        y <- y - beta (g_y + mu_t y)
        z <- z - delta (g_yy z + mu_t z - f_y)
        x <- x - alpha u,  u tracks f_x - g_xy z

    y converges to the solution of g of the smallest norm. The steps of y and z must be small enough
    for g alone. The paper uses gradients on all rows, and projects y and z on growing balls.
    """
    numbers = {"alpha": alpha, "beta": beta, "delta": delta}
    return compose_parts(
        Regularized(schedule(mu, "mu")),
        "plain",
        "gt local local",
        numbers,
        batch=batch,
        order=order,
        steps=steps,
        update_order="xyz",
    )
