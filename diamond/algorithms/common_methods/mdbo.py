"""MDBO (Gao et al., AISTATS 2023): averaged gradients, tracked at both levels."""

from ...core.pytrees import Number
from ...hypergradient import Hypergradient, neumann
from .._composition import Step, Steps, compose_parts
from ..parts import ComposedAlgorithm
from ..parts.directions import implicit
from ..parts.provenance import ABSTRACT_FAIRLY, Provenance

__all__ = ["mdbo"]

PROVENANCE = Provenance(
    "MDBO (Gao et al., AISTATS 2023)",
    ABSTRACT_FAIRLY,
    "exact on quadratics for agents with equal g_i, biased where they differ",
)


def mdbo(
    alpha: Step = None,
    beta: Step = None,
    theta: Step = None,
    gamma: Step = None,
    relax: Number = 0.5,
    batch: int = 64,
    hypergradient: Hypergradient = neumann(),
    steps: Steps = "auto",
) -> ComposedAlgorithm:
    """Track p_t = (1 - theta) p_{t-1} + theta h, and v_t likewise with gamma.

    x makes the share `relax` of the step to sum_j M_ij x_j - alpha u_i, y likewise. h uses each
    agent's own [g_yy]^-1, and the inverse of a mean is not the mean of inverses: if the g_i differ,
    the method converges to a different point (`sparkle` does not).
    """
    numbers = {"alpha": alpha, "beta": beta, "theta": theta, "gamma": gamma}
    return compose_parts(
        implicit(hypergradient),
        "average",
        "gt gt",
        numbers,
        batch=batch,
        order="paper",
        steps=steps,
        relax=relax,
        lower_levels=("common",),
    )
