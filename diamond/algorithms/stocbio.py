"""stocBiO (Ji et al., ICML 2021): inner steps on y, then a Neumann sum on fresh rows.

Rule: [S], with equal batches for all factors.
"""

from ..hypergradient import Hypergradient, neumann_sum
from ._auto import Step, Steps, choose, loops
from .parts import Loop, Variable
from .parts.directions import implicit
from .parts.estimators import plain
from .parts.moves import gossip, local

__all__ = ["stocbio"]


def stocbio(
    alpha: Step = None,
    beta: Step = None,
    inner: int | None = None,
    batch: int = 64,
    hypergradient: Hypergradient = neumann_sum(),
    steps: Steps = "auto",
) -> Loop:
    """`bsa` with the whole Neumann sum instead of eq. (5): less noise for more products."""
    inner = loops(inner)
    _, s = choose(steps, "atc", alpha=alpha, beta=beta)
    return Loop(
        implicit(hypergradient),
        plain(),
        x=Variable(s["alpha"], gossip()),
        y=Variable(s["beta"], local()),
        batch=batch,
        plan="y*inner x",
        inner=inner,
    )
