"""SGP (Nedic and Olshevsky, 2016; Assran et al., ICML 2019; with hypergradients): push-sum.

Rule: [S][V].
"""

from ..hypergradient import Hypergradient, warm_start
from ._auto import Step, Steps, choose
from .parts import Loop, Variable
from .parts.directions import implicit
from .parts.estimators import plain
from .parts.moves import local, push

__all__ = ["sgp"]


def sgp(
    alpha: Step = None,
    beta: Step = None,
    batch: int = 64,
    hypergradient: Hypergradient = warm_start(),
    steps: Steps = "auto",
) -> Loop:
    """q <- C (q - alpha h(x, y)), w <- C w, x = q / w: D-SGD where links go one way or change.

    C are the weights of the sender. Where agents differ, x has a bias of order alpha, as D-SGD has.
    """
    _, s = choose(steps, "atc", alpha=alpha, beta=beta)
    return Loop(
        implicit(hypergradient),
        plain(),
        x=Variable(s["alpha"], push()),
        y=Variable(s["beta"], local()),
        batch=batch,
        solves=("personal", "none"),
    )
