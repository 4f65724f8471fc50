"""TTSA (Hong et al., 2023): two time scales, y first.

Rule: [S].
"""

from ..hypergradient import Hypergradient, neumann
from ._auto import Step, Steps, choose
from .parts import Loop, Variable
from .parts.directions import implicit
from .parts.estimators import plain
from .parts.moves import gossip, local

__all__ = ["ttsa"]


def ttsa(
    alpha: Step = None,
    beta: Step = None,
    batch: int = 64,
    hypergradient: Hypergradient = neumann(),
    steps: Steps = "auto",
) -> Loop:
    """y_{t+1} = y_t - beta_t g_y(x_t, y_t), then x_{t+1} = x_t - alpha_t h(x_t, y_{t+1}).

    `diamond.schedule.ttsa` gives its own decay: alpha (1 + t)^(-3/5), beta (1 + t)^(-2/5).
    """
    _, s = choose(steps, "atc", alpha=alpha, beta=beta)
    return Loop(
        implicit(hypergradient),
        plain(),
        x=Variable(s["alpha"], gossip()),
        y=Variable(s["beta"], local()),
        batch=batch,
        plan="y x",
    )
