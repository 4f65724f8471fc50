"""LoPA (JMLR 2025, arXiv 2312.14690): y and z as variables, averaged hypergradients."""

from typing import Literal

from ...core.pytrees import Number
from .._composition import Step, Steps, compose_parts
from ..parts import ComposedAlgorithm
from ..parts.communication_rules import Order
from ..parts.directions import carried
from ..parts.provenance import ABSTRACT_FAIRLY, EXACT, Provenance

__all__ = ["lopa"]

PROVENANCE = Provenance("LoPA (JMLR 2025, arXiv 2312.14690)", ABSTRACT_FAIRLY, EXACT)


def lopa(
    alpha: Step = None,
    beta: Step = None,
    delta: Step = None,
    theta: Step = None,
    x: Literal["gt", "gossip"] = "gt",
    relax: Number | None = None,
    batch: int = 64,
    order: Order | None = None,
    steps: Steps = "auto",
) -> ComposedAlgorithm:
    """Step x along r_t = (1 - theta_t) r_{t-1} + theta_t (f_x - g_xy z), y along g_y.

    In round 0 theta is 1: r_0 is the first direction. z moves along g_yy z - f_y. `x` "gt":
    LoPA-GT, u_t tracks r_t; "gossip": LoPA-LG, along r_t itself, with a bias of order alpha if
    agents differ. `relax` (tau of the paper) is the share of the step of x that is made.
    """
    numbers = {"alpha": alpha, "beta": beta, "delta": delta, "theta": theta}
    return compose_parts(
        carried(),
        "average",
        f"{x} local local",
        numbers,
        batch=batch,
        order=order,
        steps=steps,
        relax=relax,
    )
