"""AID-BiO (Ji et al., ICML 2021): all rows, inner steps on y, then conjugate gradients.

Rule: [M hi][V].
"""

from ..hypergradient import Hypergradient, conjugate_gradient
from ._auto import Step, Steps, all_rows, choose, loops
from .parts import Loop, Variable
from .parts.directions import implicit
from .parts.estimators import plain
from .parts.moves import gossip, local

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
    inner = loops(inner)
    _, s = choose(steps, "atc", alpha=alpha, beta=beta)
    return Loop(
        implicit(hypergradient),
        plain(full=True),
        x=Variable(s["alpha"], gossip()),
        y=Variable(s["beta"], local()),
        batch=all_rows(batch),
        plan="y*inner x",
        inner=inner,
    )
