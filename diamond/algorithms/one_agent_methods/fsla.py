"""FSLA (Li et al., AAAI 2022): y, then z, then x with momentum, one step each."""

from .._composition import Step, Steps, choose
from ..parts import ComposedAlgorithm, Variable
from ..parts.communication import gossip, local
from ..parts.directions import carried
from ..parts.gradient_estimators import Momentum
from ..parts.provenance import ALIKE, READ_CODE, Provenance

__all__ = ["fsla"]

PROVENANCE = Provenance(
    "FSLA (Li et al., AAAI 2022)", READ_CODE + " of benchmark_bilevel; p_0 is a direction", ALIKE
)


def fsla(
    alpha: Step = None,
    beta: Step = None,
    delta: Step = None,
    eta: Step = None,
    batch: int = 64,
    steps: Steps = "auto",
) -> ComposedAlgorithm:
    """Step y along g_y, z along g_yy z - f_y at the new y, and x along p at the new y and z.

    p_t = d(x_t, y, z) + (1 - eta_t) (p_{t-1} - d(x_{t-1}, y', z')), d = f_x - g_xy z, both on one
    sample, with y' and z' of the last step of x. y and z have no momentum.
    """
    _, s = choose(steps, "atc", alpha=alpha, beta=beta, delta=delta, eta=eta)
    return ComposedAlgorithm(
        carried(),
        Momentum(s["eta"], None),
        x=Variable(s["alpha"], gossip()),
        y=Variable(s["beta"], local()),
        z=Variable(s["delta"], local()),
        batch=batch,
        update_order="y z x",
    )
