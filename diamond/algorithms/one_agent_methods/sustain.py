"""SUSTAIN (Khanduri et al., NeurIPS 2021): momentum on both gradients of one agent."""

from ...hypergradient import Hypergradient, neumann
from .._composition import Step, Steps
from ..parts import ComposedAlgorithm
from ..parts.provenance import ALIKE, READ, Provenance
from ..personal_methods.m_sgd import m_sgd

__all__ = ["sustain"]

PROVENANCE = Provenance("SUSTAIN (Khanduri et al., NeurIPS 2021)", READ, ALIKE)


def sustain(
    alpha: Step = None,
    beta: Step = None,
    eta: Step = None,
    gamma: Step = None,
    batch: int = 64,
    hypergradient: Hypergradient = neumann(),
    steps: Steps = "auto",
) -> ComposedAlgorithm:
    """Run `m_sgd`, which is SUSTAIN for one agent; several agents average x."""
    return m_sgd(alpha, beta, eta, gamma, batch, hypergradient, order="atc", steps=steps)
