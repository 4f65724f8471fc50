"""AID-BiO (Ji et al., ICML 2021): all rows, inner steps on y, then conjugate gradients.

Rule: [M hi][V].
"""

from ..hypergradient import Hypergradient, conjugate_gradient
from ._auto import Step, Steps, all_rows, composed
from .parts import Loop
from .parts.directions import implicit

__all__ = ["aid"]


def aid(
    alpha: Step = None,
    beta: Step = None,
    inner: int | None = None,
    batch: int = 64,
    hypergradient: Hypergradient = conjugate_gradient(20),
    steps: Steps = "auto",
) -> Loop:
    """`inner` gradient steps of y, g_yy z = f_y by conjugate gradients, x along f_x - g_xy z.

    z starts anew in every round (the paper starts from the last). Every gradient is on all rows;
    `batch` is not used, and taken so that all methods can be called alike.
    """
    numbers = {"alpha": alpha, "beta": beta}
    parts = implicit(hypergradient), "full", "gossip local"
    return composed(*parts, numbers, all_rows(batch), "atc", steps, plan="y*inner x", inner=inner)
