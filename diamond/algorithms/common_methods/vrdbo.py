"""VRDBO (Gao et al., AISTATS 2023): momentum, tracked at both levels."""

from ...core.pytrees import Number
from ...hypergradient import Hypergradient, neumann
from .._composition import Step, Steps, compose_parts
from ..parts import ComposedAlgorithm
from ..parts.directions import implicit
from ..parts.provenance import ABSTRACT_FAIRLY, Provenance

__all__ = ["vrdbo"]

PROVENANCE = Provenance(
    "VRDBO (Gao et al., AISTATS 2023)",
    ABSTRACT_FAIRLY,
    "exact on quadratics for agents with equal g_i, biased where they differ",
)


def vrdbo(
    alpha: Step = None,
    beta: Step = None,
    eta: Step = None,
    gamma: Step = None,
    relax: Number = 0.5,
    batch: int = 64,
    hypergradient: Hypergradient = neumann(),
    steps: Steps = "auto",
) -> ComposedAlgorithm:
    """Run `mdbo` with the momentum of eqs. (6) and (7) instead of averages; the same bias."""
    numbers = {"alpha": alpha, "beta": beta, "eta": eta, "gamma": gamma}
    return compose_parts(
        implicit(hypergradient),
        "momentum",
        "gt gt",
        numbers,
        batch=batch,
        order="paper",
        steps=steps,
        relax=relax,
        lower_levels=("common",),
    )
