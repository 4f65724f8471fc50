"""DIAMOND for a common lower level (ours, experimental): momentum and tracking on x, y and z."""

from .._composition import Step, Steps, compose_parts
from ..parts import ComposedAlgorithm
from ..parts.communication_rules import Order
from ..parts.directions import carried
from ..parts.provenance import EXACT, Provenance

__all__ = ["diamond_common"]

PROVENANCE = Provenance("DIAMOND for a common lower level (ours, experimental)", "ours", EXACT)


def diamond_common(
    alpha: Step = None,
    beta: Step = None,
    delta: Step = None,
    eta: Step = None,
    gamma: Step = None,
    batch: int = 64,
    order: Order | None = None,
    steps: Steps = "auto",
) -> ComposedAlgorithm:
    """Combine the directions of `k_free` with the momentum of eqs. (6), (7) and tracking, eq. (8).

    p along f_x - g_xy z, v along g_y, w along g_yy z - f_y. No published guarantee is known.
    """
    numbers = {"alpha": alpha, "beta": beta, "delta": delta, "eta": eta, "gamma": gamma}
    return compose_parts(
        carried(),
        "momentum",
        "gt gt gt",
        numbers,
        batch=batch,
        order=order,
        steps=steps,
        lower_levels=("common",),
    )
