"""MRBO (Yang et al., NeurIPS 2021): momentum on both gradients, the Neumann sum.

Rule: [S].
"""

from ..hypergradient import Hypergradient, neumann_sum
from ._auto import Step, Steps, choose
from .parts import Loop, Variable
from .parts.directions import implicit
from .parts.estimators import Momentum
from .parts.moves import gossip, local

__all__ = ["mrbo"]


def mrbo(
    alpha: Step = None,
    beta: Step = None,
    eta: Step = None,
    gamma: Step = None,
    batch: int = 64,
    hypergradient: Hypergradient = neumann_sum(),
    steps: Steps = "auto",
) -> Loop:
    """SUSTAIN with the whole Neumann sum for eq. (5)."""
    _, s = choose(steps, "atc", alpha=alpha, beta=beta, eta=eta, gamma=gamma)
    return Loop(
        implicit(hypergradient),
        Momentum(s["eta"], s["gamma"]),
        x=Variable(s["alpha"], gossip()),
        y=Variable(s["beta"], local()),
        batch=batch,
    )
