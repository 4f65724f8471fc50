"""SGP (Nedic and Olshevsky, 2016; Assran et al., ICML 2019; with hypergradients): push-sum."""

from ...hypergradient import Hypergradient, warm_start
from .._composition import Step, Steps, compose_parts
from ..parts import ComposedAlgorithm
from ..parts.directions import implicit
from ..parts.provenance import ALIKE, READ, Provenance

__all__ = ["sgp"]

PROVENANCE = Provenance(
    "SGP (Nedic and Olshevsky, 2016; Assran et al., ICML 2019; with hypergradients)", READ, ALIKE
)


def sgp(
    alpha: Step = None,
    beta: Step = None,
    batch: int = 64,
    hypergradient: Hypergradient = warm_start(),
    steps: Steps = "auto",
) -> ComposedAlgorithm:
    """Step q <- C (q - alpha h(x, y)), w <- C w, x = q / w: D-SGD on directed or changing links.

    C are the weights of the sender. If agents differ, x has a bias of order alpha, like D-SGD.
    """
    numbers = {"alpha": alpha, "beta": beta}
    return compose_parts(
        implicit(hypergradient),
        "plain",
        "push local",
        numbers,
        batch=batch,
        order="atc",
        steps=steps,
        lower_levels=("personal", "none"),
    )
