"""D-SOBA (Kong et al., JMLR 2025): SOBA over a network, by gossip.

Rule: [M hi][V].
"""

from ._auto import Step, Steps, choose
from .parts import Loop, Variable
from .parts.directions import carried
from .parts.estimators import Average
from .parts.moves import gossip

__all__ = ["d_soba"]


def d_soba(
    alpha: Step = None,
    beta: Step = None,
    delta: Step = None,
    theta: Step = None,
    first_order: bool = False,
    batch: int = 64,
    steps: Steps = "auto",
) -> Loop:
    """`sparkle` without corrections: a bias of the order of the steps where agents differ.

    `first_order` (D-SOBA-FO) takes differences of gradients for both products.
    """
    _, s = choose(steps, "atc", alpha=alpha, beta=beta, delta=delta, theta=theta)
    return Loop(
        carried(differences=first_order),
        Average(s["theta"]),
        x=Variable(s["alpha"], gossip()),
        y=Variable(s["beta"], gossip()),
        z=Variable(s["delta"], gossip()),
        batch=batch,
        solves=("common",),
    )
