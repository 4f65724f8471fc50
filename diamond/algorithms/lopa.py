"""LoPA (JMLR 2025, arXiv 2312.14690): y and z carried along, averaged hypergradients.

Rule: [M mid][V].
"""

from typing import Literal

from ..numbers.schedule import Number
from ._auto import Order, Step, Steps, choose
from .parts import Loop, Variable
from .parts.directions import carried
from .parts.estimators import Average
from .parts.moves import local, move

__all__ = ["lopa"]


def lopa(
    alpha: Step = None,
    beta: Step = None,
    delta: Step = None,
    theta: Step = None,
    x: Literal["gt", "gossip"] = "gt",
    relax: Number | None = None,
    batch: int = 64,
    order: Order | None = None,
    steps: Steps = "auto",
) -> Loop:
    """r_t = (1 - theta_t) r_{t-1} + theta_t (f_x - g_xy z); y along g_y, z along g_yy z - f_y.

    `x` "gt": LoPA-GT, u_t tracks r_t; "gossip": LoPA-LG, along r_t itself, with a bias of order
    alpha where agents differ. `relax`, tau of the paper: x goes that share of the way.
    """
    order, s = choose(steps, order, alpha=alpha, beta=beta, delta=delta, theta=theta)
    return Loop(
        carried(),
        Average(s["theta"]),
        x=Variable(s["alpha"], move(x, order, relax)),
        y=Variable(s["beta"], local()),
        z=Variable(s["delta"], local()),
        batch=batch,
    )
