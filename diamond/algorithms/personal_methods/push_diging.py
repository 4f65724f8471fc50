"""Push-DIGing (Nedic, Olshevsky and Shi, 2017; with hypergradients): tracking by push-sum."""

from ...hypergradient import Hypergradient, warm_start
from .._composition import Step, Steps, compose_parts
from ..parts import ComposedAlgorithm
from ..parts.directions import implicit
from ..parts.provenance import EXACT, READ_CODE, Provenance

__all__ = ["push_diging"]

PROVENANCE = Provenance(
    "Push-DIGing (Nedic, Olshevsky and Shi, 2017; with hypergradients)",
    READ_CODE + " of Bluefog",
    EXACT,
)


def push_diging(
    alpha: Step = None,
    beta: Step = None,
    batch: int = 64,
    hypergradient: Hypergradient = warm_start(),
    steps: Steps = "auto",
) -> ComposedAlgorithm:
    """Step u = C u' + h - h', q <- C (q - alpha u), w <- C w, x = q / w; u', h' of the last round.

    Only the sender's weights are used: an agent need not know whom it hears. With weights of both
    ends, `gt_sgd` is AB (push-pull) on the same networks.
    """
    numbers = {"alpha": alpha, "beta": beta}
    return compose_parts(
        implicit(hypergradient),
        "plain",
        "push_gt local",
        numbers,
        batch=batch,
        order="atc",
        steps=steps,
        lower_levels=("personal", "none"),
    )
