"""GT-SGD (Lu et al., 2019, with hypergradients): one mini-batch, tracked."""

from ...hypergradient import Hypergradient, warm_start
from .._composition import Step, Steps, compose_parts
from ..parts import ComposedAlgorithm
from ..parts.communication_rules import Order
from ..parts.directions import implicit
from ..parts.provenance import EXACT, READ, Provenance

__all__ = ["gt_sgd"]

PROVENANCE = Provenance("GT-SGD (Lu et al., 2019, with hypergradients)", READ, EXACT)


def gt_sgd(
    alpha: Step = None,
    beta: Step = None,
    batch: int = 64,
    hypergradient: Hypergradient = warm_start(),
    order: Order | None = None,
    steps: Steps = "auto",
) -> ComposedAlgorithm:
    """Track p_t = h(x_t, y_t; xi_t) by u_t, with v_t = g_y(x_t, y_t; zeta_t); step as `diamond`."""
    numbers = {"alpha": alpha, "beta": beta}
    return compose_parts(
        implicit(hypergradient),
        "plain",
        "gt local",
        numbers,
        batch=batch,
        order=order,
        steps=steps,
        lower_levels=("personal", "none"),
    )
