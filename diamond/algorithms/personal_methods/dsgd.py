"""D-SGD (Nedic and Ozdaglar, 2009; Lian et al., 2017; with hypergradients): one mini-batch."""

from ...hypergradient import Hypergradient, warm_start
from .._composition import Step, Steps, compose_parts
from ..parts import ComposedAlgorithm
from ..parts.communication_rules import Order
from ..parts.directions import implicit
from ..parts.provenance import ALIKE, READ, Provenance

__all__ = ["dsgd"]

PROVENANCE = Provenance(
    "D-SGD (Nedic and Ozdaglar, 2009; Lian et al., 2017; with hypergradients)", READ, ALIKE
)


def dsgd(
    alpha: Step = None,
    beta: Step = None,
    batch: int = 64,
    hypergradient: Hypergradient = warm_start(),
    order: Order | None = None,
    steps: Steps = "auto",
) -> ComposedAlgorithm:
    """Step x_{t+1} = sum_j M_ij x_{j,t} - alpha_t h(x_t, y_t; xi_t), y_{t+1} = y_t - beta_t g_y.

    If agents differ, x has a bias of order alpha.
    """
    numbers = {"alpha": alpha, "beta": beta}
    return compose_parts(
        implicit(hypergradient),
        "plain",
        "gossip local",
        numbers,
        batch=batch,
        order=order,
        steps=steps,
        lower_levels=("personal", "none"),
    )
