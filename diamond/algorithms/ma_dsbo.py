"""MA-DSBO (Chen et al., ICML 2023): y and z in inner loops over the network, tracked.

Rule: [M mid][V]; trackers are kept, the paper restarts them.
"""

from ._auto import Step, Steps, composed
from .parts import Loop
from .parts.directions import carried

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
    numbers = {"alpha": alpha, "beta": beta, "delta": delta, "theta": theta}
    parts = carried(), "average", "gt gt gt"
    return composed(
        *parts,
        numbers,
        batch,
        "atc",
        steps,
        plan="y*inner z*inner x",
        inner=inner,
        solves=("common",),
    )
