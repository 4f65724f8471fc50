"""BOME (Liu et al., NeurIPS 2022): gradients only, with a weight that keeps g decreasing."""

from ...core.pytrees import Number
from ...core.validation import as_int
from ...schedules.deferred import agent_count
from ...schedules.step_schedules import step_factor
from .._composition import Step, Steps, choose
from ..parts import ComposedAlgorithm, Variable
from ..parts.communication import local, tracking
from ..parts.communication_rules import Order
from ..parts.gradient_estimators import plain
from ..parts.provenance import READ, Provenance
from ..parts.value_function import Barrier

__all__ = ["bome"]

PROVENANCE = Provenance(
    "BOME (Liu et al., NeurIPS 2022)",
    READ + " for one agent; ours for several",
    "its bias on quadratics falls with the steps",
)


def bome(
    alpha: Step = None,
    beta: Step = None,
    delta: Step = None,
    eta: Number = 0.5,
    inner: int = 10,
    batch: int = 64,
    order: Order | None = None,
    steps: Steps = "auto",
) -> ComposedAlgorithm:
    """Move x and y along grad f + lam grad q, with q = g(x, y) - g(x, y') as a constraint.

    y' are `inner` steps from y along g_y, of the length `delta` (by default that of y), and are
    constant in q. lam = max(eta - <grad f, grad q> / ||grad q||^2, 0) in every round and for every
    agent, so that q decreases; the paper moves x and y with one step, alpha = beta. With several
    agents x is tracked, and the products are those of the parts of y alone.
    The lower level needs no strong convexity, only that gradient steps find its minimum.
    """
    order, s = choose(steps, order, alpha=alpha, beta=beta, delta=delta)
    eta = step_factor("eta", eta)
    return ComposedAlgorithm(
        Barrier(s["delta"], eta, as_int("inner", inner, 1), agent_count),
        plain(),
        x=Variable(s["alpha"], tracking(order)),
        y=Variable(s["beta"], local()),
        batch=as_int("batch", batch, 1),
        lower_levels=("personal",),
    )
