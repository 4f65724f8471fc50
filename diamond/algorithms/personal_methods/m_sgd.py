"""M-SGD (Qiu et al., 2023): DIAMOND without tracking; on one agent, SUSTAIN."""

from ...hypergradient import Hypergradient, warm_start
from .._composition import Step, Steps, compose_parts
from ..parts import ComposedAlgorithm
from ..parts.communication_rules import Order
from ..parts.directions import implicit
from ..parts.provenance import ALIKE, READ, Provenance

__all__ = ["m_sgd"]

PROVENANCE = Provenance("M-SGD (Qiu et al., 2023)", READ, ALIKE)


def m_sgd(
    alpha: Step = None,
    beta: Step = None,
    eta: Step = None,
    gamma: Step = None,
    batch: int = 64,
    hypergradient: Hypergradient = warm_start(),
    order: Order | None = None,
    steps: Steps = "auto",
) -> ComposedAlgorithm:
    """Step x_{t+1} = sum_j M_ij x_{j,t} - alpha_t p_t; p_t, v_t and y_{t+1} as in `diamond`."""
    numbers = {"alpha": alpha, "beta": beta, "eta": eta, "gamma": gamma}
    return compose_parts(
        implicit(hypergradient),
        "momentum",
        "gossip local",
        numbers,
        batch=batch,
        order=order,
        steps=steps,
        lower_levels=("personal", "none"),
    )
