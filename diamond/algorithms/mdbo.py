"""MDBO (Gao et al., AISTATS 2023): averaged gradients, tracked at both levels.

Rule: [M mid][V] for agents with equal g_i; biased where they differ.
"""

from ..hypergradient import Hypergradient, neumann
from ..numbers.schedule import Number
from ._auto import Step, Steps, choose
from .parts import Loop, Variable
from .parts.directions import implicit
from .parts.estimators import Average
from .parts.moves import tracking

__all__ = ["mdbo"]


def mdbo(
    alpha: Step = None,
    beta: Step = None,
    theta: Step = None,
    gamma: Step = None,
    relax: Number = 0.5,
    batch: int = 64,
    hypergradient: Hypergradient = neumann(),
    steps: Steps = "auto",
) -> Loop:
    """p_t = (1 - theta) p_{t-1} + theta h, v_t likewise with gamma; both tracked.

    x goes `relax` of the way to sum_j M_ij x_j - alpha u_i, y likewise. h uses each agent's own
    [g_yy]^-1, and the inverse of a mean is not the mean of inverses: where the g_i differ, it
    converges elsewhere (`sparkle` does not).
    """
    _, s = choose(steps, "paper", alpha=alpha, beta=beta, theta=theta, gamma=gamma)
    return Loop(
        implicit(hypergradient),
        Average(s["theta"], s["gamma"]),
        x=Variable(s["alpha"], tracking("paper", relax)),
        y=Variable(s["beta"], tracking("paper", relax)),
        batch=batch,
        solves=("common",),
    )
