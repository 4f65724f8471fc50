"""ITD-BiO (Ji et al., ICML 2021): all rows, differentiates through gradient steps on y."""

from ...hypergradient import unrolled
from .._composition import Step, Steps, check_unused_batch, choose
from ..parts import ComposedAlgorithm, Variable
from ..parts.communication import gossip, local
from ..parts.directions import implicit
from ..parts.gradient_estimators import plain
from ..parts.provenance import READ_CODE, Provenance

__all__ = ["itd"]

PROVENANCE = Provenance(
    "ITD-BiO (Ji et al., ICML 2021)",
    READ_CODE + " of MRVRBO, built on that of the same authors; y steps once x has moved",
    "its bias on quadratics falls with the inner steps",
)


def itd(
    alpha: Step = None,
    beta: Step = None,
    inner: int = 10,
    batch: int = 64,
    steps: Steps = "auto",
) -> ComposedAlgorithm:
    """Step x along the gradient of f(x, y_N(x)), N = `inner` gradient steps from y; then step y.

    The bias shrinks as (1 - beta mu)^N. All gradients use all rows; `batch` is accepted for a
    uniform interface and not used.
    """
    _, s = choose(steps, "atc", alpha=alpha, beta=beta)
    return ComposedAlgorithm(
        implicit(unrolled(inner, s["beta"](0))),
        plain(full=True),
        x=Variable(s["alpha"], gossip()),
        y=Variable(s["beta"], local()),
        batch=check_unused_batch(batch),
        update_order="x y*inner",
        inner=inner,
    )
