"""AID-BiO (Ji et al., ICML 2021): all rows, inner steps on y, then conjugate gradients."""

from ...hypergradient import Hypergradient, conjugate_gradient
from .._composition import Step, Steps, check_unused_batch, compose_parts
from ..parts import ComposedAlgorithm
from ..parts.directions import implicit
from ..parts.provenance import ALIKE, READ_CODE, Provenance

__all__ = ["aid"]

PROVENANCE = Provenance(
    "AID-BiO (Ji et al., ICML 2021)",
    READ_CODE + " of MRVRBO, built on that of the same authors",
    ALIKE,
)


def aid(
    alpha: Step = None,
    beta: Step = None,
    inner: int | None = None,
    batch: int = 64,
    hypergradient: Hypergradient = conjugate_gradient(20),
    steps: Steps = "auto",
) -> ComposedAlgorithm:
    """Make `inner` gradient steps of y, solve g_yy z = f_y by CG, step x along f_x - g_xy z.

    z starts from 0 in every round (the paper starts from the last z). All gradients use all rows;
    `batch` is accepted for a uniform interface and not used.
    """
    numbers = {"alpha": alpha, "beta": beta}
    return compose_parts(
        implicit(hypergradient),
        "full",
        "gossip local",
        numbers,
        batch=check_unused_batch(batch),
        order="atc",
        steps=steps,
        update_order="y*inner x",
        inner=inner,
    )
