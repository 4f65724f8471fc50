"""MA-DSBO (Chen et al., ICML 2023): y and z in inner loops over the network, tracked.

Rule: [M mid][V]; trackers are kept, the paper restarts them.
"""

from ._auto import Step, Steps, choose, loops
from .parts import Loop, Variable
from .parts.directions import carried
from .parts.estimators import Average
from .parts.moves import tracking

__all__ = ["ma_dsbo"]


def ma_dsbo(
    alpha: Step = None,
    beta: Step = None,
    delta: Step = None,
    theta: Step = None,
    inner: int | None = None,
    batch: int = 64,
    steps: Steps = "auto",
) -> Loop:
    """`inner` tracked steps on y, as many on z, then one on x; each is an exchange.

    `inner` None: as many as halve the error of y, 10 at most. Trackers are kept from round to
    round: restarted ones leave a bias that only shrinks with `inner`.
    """
    inner = loops(inner)
    _, s = choose(steps, "atc", alpha=alpha, beta=beta, delta=delta, theta=theta)
    return Loop(
        carried(),
        Average(s["theta"]),
        x=Variable(s["alpha"], tracking()),
        y=Variable(s["beta"], tracking()),
        z=Variable(s["delta"], tracking()),
        batch=batch,
        plan="y*inner z*inner x",
        inner=inner,
        solves=("common",),
    )
