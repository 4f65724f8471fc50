"""AmIGO (Arbel and Mairal, ICLR 2022): inner steps on y, then on z, both from where they were.

Rule: [S]; a fresh xi in every step of z.
"""

from ._auto import Step, Steps, choose, loops
from .parts import Loop, Variable
from .parts.directions import carried
from .parts.estimators import plain
from .parts.moves import gossip, local

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
    inner = loops(inner)
    _, s = choose(steps, "atc", alpha=alpha, beta=beta, delta=delta)
    return Loop(
        carried(),
        plain(),
        x=Variable(s["alpha"], gossip()),
        y=Variable(s["beta"], local()),
        z=Variable(s["delta"], local()),
        batch=batch,
        plan="y*inner z*inner x",
        inner=inner,
    )
