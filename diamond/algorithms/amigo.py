"""AmIGO (Arbel and Mairal, ICLR 2022): inner steps on y, then on z, both from where they were.

Rule: [S]; a fresh xi in every step of z.
"""

from ._auto import Step, Steps, composed
from .parts import Loop
from .parts.directions import carried

__all__ = ["amigo"]


def amigo(
    alpha: Step = None,
    beta: Step = None,
    delta: Step = None,
    inner: int | None = None,
    batch: int = 64,
    steps: Steps = "auto",
) -> Loop:
    """`inner` steps of y along g_y, as many of z along g_yy z - f_y; x along f_x - g_xy z."""
    numbers = {"alpha": alpha, "beta": beta, "delta": delta}
    parts = carried(), "plain", "gossip local local"
    return composed(*parts, numbers, batch, "atc", steps, plan="y*inner z*inner x", inner=inner)
