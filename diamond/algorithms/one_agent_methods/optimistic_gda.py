"""Optimistic GDA (Daskalakis et al., ICLR 2018): GDA along extrapolated gradients."""

from ...problem import LowerLevel
from .._composition import Step, Steps
from ..parts import ComposedAlgorithm
from ..parts.provenance import CERTAIN, Provenance
from .gda import descend_ascend

__all__ = ["optimistic_gda"]

PROVENANCE = Provenance(
    "Optimistic GDA (Daskalakis et al., ICLR 2018)", CERTAIN, "exact on minimax problems"
)


def optimistic_gda(
    alpha: Step = None,
    beta: Step = None,
    lower_level: LowerLevel = "personal",
    batch: int = 64,
    steps: Steps = "auto",
) -> ComposedAlgorithm:
    """Run `gda` along 2 d_t - d_{t-1}, d the gradient of x or y in each round.

    x and y that pull each other strongly make `gda` circle, unless its steps are small; the
    extrapolation damps that. Arguments and bias on other problems are those of `gda`.
    """
    return descend_ascend("optimistic", alpha, beta, lower_level, batch, steps)
