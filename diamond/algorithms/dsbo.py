"""DSBO (Chen et al., 2022, arXiv 2206.05670): y and z in inner loops, by gossip.

Rule: [M mid][V].
"""

from ._auto import Step, Steps, choose, loops
from .parts import Loop, Variable
from .parts.directions import carried
from .parts.estimators import plain
from .parts.moves import gossip

__all__ = ["dsbo"]


def dsbo(
    alpha: Step = None,
    beta: Step = None,
    delta: Step = None,
    inner: int | None = None,
    batch: int = 64,
    steps: Steps = "auto",
) -> Loop:
    """`ma_dsbo` without trackers and without averaging: a bias of the order of the steps."""
    inner = loops(inner)
    _, s = choose(steps, "atc", alpha=alpha, beta=beta, delta=delta)
    return Loop(
        carried(),
        plain(),
        x=Variable(s["alpha"], gossip()),
        y=Variable(s["beta"], gossip()),
        z=Variable(s["delta"], gossip()),
        batch=batch,
        plan="y*inner z*inner x",
        inner=inner,
        solves=("common",),
    )
