"""DSGDA-GT (optimization-online 28153): gradients only, all three variables tracked."""

from ...core.pytrees import Number
from ...schedules.step_schedules import Schedule
from .._composition import Step, Steps, compose_parts
from ..parts import ComposedAlgorithm
from ..parts.directions import penalty
from ..parts.provenance import ABSTRACT_FAIRLY, PENALIZED, Provenance

__all__ = ["dsgda_gt"]

PROVENANCE = Provenance("DSGDA-GT (optimization-online 28153)", ABSTRACT_FAIRLY, PENALIZED)


def dsgda_gt(
    alpha: Step = None,
    beta: Step = None,
    delta: Step = None,
    lam: Schedule | Number = 20.0,
    batch: int = 64,
    steps: Steps = "auto",
) -> ComposedAlgorithm:
    """Track all three variables of the penalty of `f2sa`, for a common y; bias of order 1 / lam."""
    numbers = {"alpha": alpha, "beta": beta, "delta": delta}
    return compose_parts(
        penalty(lam),
        "plain",
        "gt gt gt",
        numbers,
        batch=batch,
        order="atc",
        steps=steps,
        lower_levels=("common",),
    )
