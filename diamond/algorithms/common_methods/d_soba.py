"""D-SOBA (Kong et al., JMLR 2025): SOBA over a network, by gossip."""

from .._composition import Step, Steps, compose_parts
from ..parts import ComposedAlgorithm
from ..parts.directions import carried
from ..parts.provenance import ABSTRACT_CERTAIN, ALIKE, Provenance

__all__ = ["d_soba"]

PROVENANCE = Provenance("D-SOBA (Kong et al., JMLR 2025)", ABSTRACT_CERTAIN, ALIKE)


def d_soba(
    alpha: Step = None,
    beta: Step = None,
    delta: Step = None,
    theta: Step = None,
    first_order: bool = False,
    batch: int = 64,
    steps: Steps = "auto",
) -> ComposedAlgorithm:
    """Run `sparkle` without corrections: a bias of the order of the steps if agents differ.

    `first_order` (D-SOBA-FO) replaces both products by differences of gradients.
    """
    numbers = {"alpha": alpha, "beta": beta, "delta": delta, "theta": theta}
    return compose_parts(
        carried(differences=first_order),
        "average",
        "gossip gossip gossip",
        numbers,
        batch=batch,
        order="atc",
        steps=steps,
        lower_levels=("common",),
    )
