"""SLDBO (Dong et al., Math. of OR 2025): all rows, tracked, z in a ball."""

from ...core.pytrees import Number
from ...problem.proximal_operators import ball
from .._composition import Step, Steps, check_unused_batch, choose
from ..parts import ComposedAlgorithm, Variable
from ..parts.communication import tracking
from ..parts.directions import carried
from ..parts.gradient_estimators import plain
from ..parts.provenance import ABSTRACT_FAIRLY, EXACT, Provenance

__all__ = ["sldbo"]

PROVENANCE = Provenance("SLDBO (Dong et al., Math. of OR 2025)", ABSTRACT_FAIRLY, EXACT)


def sldbo(
    alpha: Step = None,
    beta: Step = None,
    delta: Step = None,
    radius: Number | None = None,
    batch: int = 64,
    steps: Steps = "auto",
) -> ComposedAlgorithm:
    """Track SOBA's directions on all rows; z is projected onto the ball of `radius`.

    The radius must be at least ||f_y|| / mu, so that z* is inside; None: no projection. `batch` is
    accepted for a uniform interface and not used.
    """
    _, s = choose(steps, "atc", alpha=alpha, beta=beta, delta=delta)
    projection = None if radius is None else ball(radius)
    return ComposedAlgorithm(
        carried(),
        plain(full=True),
        x=Variable(s["alpha"], tracking()),
        y=Variable(s["beta"], tracking()),
        z=Variable(s["delta"], tracking(prox=projection)),
        batch=check_unused_batch(batch),
        lower_levels=("common",),
    )
