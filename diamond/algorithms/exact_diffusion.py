"""Exact diffusion (Yuan et al., 2019; NIDS, D2; with hypergradients): one vector, no bias.

Rule: [S][V].
"""

from ..hypergradient import Hypergradient, warm_start
from ._auto import Step, Steps, choose
from .parts import Loop, Variable
from .parts.directions import implicit
from .parts.estimators import plain
from .parts.moves import diffusion, local

__all__ = ["exact_diffusion"]


def exact_diffusion(
    alpha: Step = None,
    beta: Step = None,
    batch: int = 64,
    hypergradient: Hypergradient = warm_start(),
    steps: Steps = "auto",
) -> Loop:
    """psi_t = x_t - alpha d_t, phi_t = psi_t + x_t - psi_{t-1}, x_{t+1} = W phi_t.

    d is f_x or, where there is a lower level, the hypergradient; W = M or (I + M) / 2.
    """
    _, s = choose(steps, "atc", alpha=alpha, beta=beta)
    return Loop(
        implicit(hypergradient),
        plain(),
        x=Variable(s["alpha"], diffusion()),
        y=Variable(s["beta"], local()),
        batch=batch,
        solves=("personal", "none"),
    )
