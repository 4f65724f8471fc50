"""BSA (Ghadimi and Wang, 2018): inner steps on y, then one of x along eq. (5)."""

from ...hypergradient import Hypergradient, neumann
from .._composition import Step, Steps, compose_parts
from ..parts import ComposedAlgorithm
from ..parts.directions import implicit
from ..parts.provenance import ALIKE, READ, Provenance

__all__ = ["bsa"]

PROVENANCE = Provenance(
    "BSA (Ghadimi and Wang, 2018)", READ + ", schedules from memory, fairly certain", ALIKE
)


def bsa(
    alpha: Step = None,
    beta: Step = None,
    inner: int | None = None,
    batch: int = 64,
    hypergradient: Hypergradient = neumann(),
    steps: Steps = "auto",
) -> ComposedAlgorithm:
    """Make `inner` steps of y along g_y, then step x along the hypergradient, on fresh batches.

    `diamond.schedules.bsa` has the paper's decay, (1 + t)^(-1/2). The method is for one agent;
    several agents average x with their neighbours.
    """
    numbers = {"alpha": alpha, "beta": beta}
    return compose_parts(
        implicit(hypergradient),
        "plain",
        "gossip local",
        numbers,
        batch=batch,
        order="atc",
        steps=steps,
        update_order="y*inner x",
        inner=inner,
    )
