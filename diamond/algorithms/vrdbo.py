"""VRDBO (Gao et al., AISTATS 2023): momentum, tracked at both levels.

Rule: [M mid][V] for agents with equal g_i; biased where they differ.
"""

from ..hypergradient import Hypergradient, neumann
from ..numbers.schedule import Number
from ._auto import Step, Steps, choose
from .parts import Loop, Variable
from .parts.directions import implicit
from .parts.estimators import Momentum
from .parts.moves import tracking

__all__ = ["vrdbo"]


def vrdbo(
    alpha: Step = None,
    beta: Step = None,
    eta: Step = None,
    gamma: Step = None,
    relax: Number = 0.5,
    batch: int = 64,
    hypergradient: Hypergradient = neumann(),
    steps: Steps = "auto",
) -> Loop:
    """`mdbo` with the momentum of eqs. (6) and (7) for its averages; the same bias."""
    _, s = choose(steps, "paper", alpha=alpha, beta=beta, eta=eta, gamma=gamma)
    return Loop(
        implicit(hypergradient),
        Momentum(s["eta"], s["gamma"]),
        x=Variable(s["alpha"], tracking("paper", relax)),
        y=Variable(s["beta"], tracking("paper", relax)),
        batch=batch,
        solves=("common",),
    )
