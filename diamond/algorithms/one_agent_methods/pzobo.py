"""PZOBO (Sow et al., NeurIPS 2022): the Jacobian of y by steps at random points around x."""

from ...core.pytrees import Number
from ...hypergradient import zeroth_order
from .._composition import Step, Steps, check_unused_batch, choose
from ..parts import ComposedAlgorithm, Variable
from ..parts.communication import gossip, local
from ..parts.directions import implicit
from ..parts.gradient_estimators import plain
from ..parts.provenance import READ_CODE, Provenance

__all__ = ["pzobo"]

PROVENANCE = Provenance(
    "PZOBO (Sow et al., NeurIPS 2022)",
    READ_CODE + " of benchmark_bilevel; y steps once x has moved",
    "on quadratics, in the mean, that of `itd`",
)


def pzobo(
    alpha: Step = None,
    beta: Step = None,
    inner: int = 10,
    directions: int = 10,
    spread: Number = 0.1,
    batch: int = 64,
    steps: Steps = "auto",
) -> ComposedAlgorithm:
    """Step x along f_x + (1/Q) sum_w w <(y_N(x + mu w) - y_N(x)) / mu, f_y>; then step y.

    y_N are N = `inner` gradient steps from y, w are Q = `directions` Gaussian directions, mu is
    `spread`: gradients alone, with noise of the order of dim(x) / Q. All gradients use all rows;
    `batch` is accepted for a uniform interface and not used.
    """
    _, s = choose(steps, "atc", alpha=alpha, beta=beta)
    return ComposedAlgorithm(
        implicit(zeroth_order(inner, s["beta"](0), directions, spread)),
        plain(full=True),
        x=Variable(s["alpha"], gossip()),
        y=Variable(s["beta"], local()),
        batch=check_unused_batch(batch),
        update_order="x y*inner",
        inner=inner,
    )
