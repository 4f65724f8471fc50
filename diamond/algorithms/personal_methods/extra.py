"""EXTRA (Shi et al., 2015; with hypergradients): one message per round, no bias."""

from ...hypergradient import Hypergradient, warm_start
from .._composition import Step, Steps, compose_parts
from ..parts import ComposedAlgorithm
from ..parts.directions import implicit
from ..parts.provenance import EXACT, READ, Provenance

__all__ = ["extra"]

PROVENANCE = Provenance("EXTRA (Shi et al., 2015; with hypergradients)", READ, EXACT)


def extra(
    alpha: Step = None,
    beta: Step = None,
    batch: int = 64,
    hypergradient: Hypergradient = warm_start(),
    steps: Steps = "auto",
) -> ComposedAlgorithm:
    """Step x_{t+2} = (I + M) x_{t+1} - (I + M) / 2 x_t - alpha (d_{t+1} - d_t).

    d is f_x or, with a lower level, the hypergradient. Messages are sent before d is computed.
    """
    numbers = {"alpha": alpha, "beta": beta}
    return compose_parts(
        implicit(hypergradient),
        "plain",
        "extra local",
        numbers,
        batch=batch,
        order="atc",
        steps=steps,
        lower_levels=("personal", "none"),
    )
