"""BR-FedBi (ICLR 2026, OpenReview AzaE6Dcz1C): SOBA among liars, with momentum."""

from .._composition import Step, Steps, choose
from ..parts import ComposedAlgorithm, Variable
from ..parts.communication import gossip
from ..parts.directions import carried
from ..parts.gradient_estimators import average
from ..parts.provenance import ALIKE, Provenance

__all__ = ["br_fedbi"]

PROVENANCE = Provenance(
    "BR-FedBi, BR-FedBiM (ICLR 2026, OpenReview AzaE6Dcz1C)",
    "abstract, public reviews and a summary with its formulas; neighbours for the server are ours",
    ALIKE,
)


def br_fedbi(
    alpha: Step = None,
    beta: Step = None,
    delta: Step = None,
    theta: Step = None,
    batch: int = 64,
    steps: Steps = "auto",
) -> ComposedAlgorithm:
    """Step x, y and z along averages of SOBA's directions, and combine them robustly.

        p_t = (1 - theta_t) p_{t-1} + theta_t (f_x - g_xy z), likewise of g_y and of g_yy z - f_y
        x_{t+1} = AGG_j(x_j - alpha p_j), y and z likewise

    AGG is the mixing of the network: `network.complete(9).robust("trimmed", liars=2)` is a server
    that trims. The average is what keeps the noise of honest agents from hiding liars; theta = 1 is
    BR-FedBi, less is BR-FedBiM. Biased by the steps if agents differ, as `d_soba`.
    """
    _, s = choose(steps, "atc", alpha=alpha, beta=beta, delta=delta, theta=theta)
    return ComposedAlgorithm(
        carried(),
        average(s["theta"], s["theta"]),
        x=Variable(s["alpha"], gossip()),
        y=Variable(s["beta"], gossip()),
        z=Variable(s["delta"], gossip()),
        batch=batch,
        lower_levels=("common",),
    )
