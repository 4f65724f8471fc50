"""SOBA (Dagreou et al., NeurIPS 2022): x, y and z at once, one mini-batch.

Rule: [S][V].
"""

from ._auto import Step, Steps, choose
from .parts import Loop, Variable
from .parts.directions import carried
from .parts.estimators import plain
from .parts.moves import gossip, local

__all__ = ["soba"]


def soba(
    alpha: Step = None,
    beta: Step = None,
    delta: Step = None,
    batch: int = 64,
    steps: Steps = "auto",
) -> Loop:
    """x along f_x - g_xy z, y along g_y, z along g_yy z - f_y (z is -v of the paper)."""
    _, s = choose(steps, "atc", alpha=alpha, beta=beta, delta=delta)
    return Loop(
        carried(),
        plain(),
        x=Variable(s["alpha"], gossip()),
        y=Variable(s["beta"], local()),
        z=Variable(s["delta"], local()),
        batch=batch,
    )
