"""SPARKLE (Zhu et al., NeurIPS 2024): any correction on each variable."""

from typing import Literal

from .._composition import Step, Steps, compose_parts
from ..parts import ComposedAlgorithm
from ..parts.directions import carried
from ..parts.provenance import ABSTRACT_FAIRLY, EXACT, Provenance

__all__ = ["sparkle"]

PROVENANCE = Provenance("SPARKLE (Zhu et al., NeurIPS 2024)", ABSTRACT_FAIRLY, EXACT)


def sparkle(
    alpha: Step = None,
    beta: Step = None,
    delta: Step = None,
    theta: Step = None,
    x: Literal["gt", "ed", "extra", "gossip"] = "gt",
    yz: Literal["gt", "ed", "extra", "gossip"] = "ed",
    batch: int = 64,
    plan: Literal["xyz", "y z x"] = "xyz",
    steps: Steps = "auto",
) -> ComposedAlgorithm:
    """Step y along g_y, z along g_yy z - f_y, x along an average of f_x - g_xy z.

    The average is r_t = (1 - theta) r_{t-1} + theta (f_x - g_xy z). `x` and `yz` select the moves
    of x, and of y and z: gradient tracking, exact diffusion, EXTRA or plain gossip (`d_soba`).
    `plan` "y z x" uses y_{t+1} for z and both for x, in three exchanges per round instead of one.
    """
    numbers = {"alpha": alpha, "beta": beta, "delta": delta, "theta": theta}
    return compose_parts(
        carried(),
        "average",
        f"{x} {yz} {yz}",
        numbers,
        batch=batch,
        order="atc",
        steps=steps,
        update_order=plan,
        lower_levels=("common",),
    )
