"""MRBO (Yang et al., NeurIPS 2021): momentum on both gradients, the Neumann sum."""

from ...hypergradient import Hypergradient, neumann_sum
from .._composition import Step, Steps, compose_parts
from ..parts import ComposedAlgorithm
from ..parts.directions import implicit
from ..parts.provenance import ALIKE, READ, Provenance

__all__ = ["mrbo"]

PROVENANCE = Provenance("MRBO (Yang et al., NeurIPS 2021)", READ, ALIKE)


def mrbo(
    alpha: Step = None,
    beta: Step = None,
    eta: Step = None,
    gamma: Step = None,
    batch: int = 64,
    hypergradient: Hypergradient = neumann_sum(),
    steps: Steps = "auto",
) -> ComposedAlgorithm:
    """Run SUSTAIN with the whole Neumann sum instead of eq. (5)."""
    numbers = {"alpha": alpha, "beta": beta, "eta": eta, "gamma": gamma}
    return compose_parts(
        implicit(hypergradient),
        "momentum",
        "gossip local",
        numbers,
        batch=batch,
        order="atc",
        steps=steps,
    )
