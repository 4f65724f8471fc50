"""MA-SOBA (Chen et al., 2023): SOBA with an averaged direction of x.

Rule: [S], all three at once.
"""

from ._auto import Step, Steps, choose
from .parts import Loop, Variable
from .parts.directions import carried
from .parts.estimators import Average
from .parts.moves import gossip, local

__all__ = ["ma_soba"]


def ma_soba(
    alpha: Step = None,
    beta: Step = None,
    delta: Step = None,
    theta: Step = None,
    batch: int = 64,
    steps: Steps = "auto",
) -> Loop:
    """`soba` with x along r_t = (1 - theta) r_{t-1} + theta (f_x - g_xy z)."""
    _, s = choose(steps, "atc", alpha=alpha, beta=beta, delta=delta, theta=theta)
    return Loop(
        carried(),
        Average(s["theta"]),
        x=Variable(s["alpha"], gossip()),
        y=Variable(s["beta"], local()),
        z=Variable(s["delta"], local()),
        batch=batch,
    )
