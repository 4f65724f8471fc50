"""FAB (arXiv 2605.06328): a common lower level by gradients only, on directed changing links."""

from ...core.pytrees import Number
from ...schedules.step_schedules import Schedule
from .._composition import Step, Steps
from ..parts import ComposedAlgorithm
from ..parts.provenance import ABSTRACT_FAIRLY, PENALIZED, Provenance
from .dsgda_gt import dsgda_gt

__all__ = ["fab"]

PROVENANCE = Provenance("FAB (arXiv 2605.06328)", ABSTRACT_FAIRLY, PENALIZED)


def fab(
    alpha: Step = None,
    beta: Step = None,
    delta: Step = None,
    lam: Schedule | Number = 20.0,
    batch: int = 64,
    steps: Steps = "auto",
) -> ComposedAlgorithm:
    """Move all three variables of the penalty of `f2sa` by AB (push-pull); bias of order 1 / lam.

    x, y, z are averages with weights of the receiver, and their trackers totals with weights of the
    sender. On undirected links this is `dsgda_gt`.
    """
    return dsgda_gt(alpha, beta, delta, lam, batch, steps)
