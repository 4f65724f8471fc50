"""TTSA (Hong et al., 2023): two time scales, y first."""

from ...hypergradient import Hypergradient, neumann
from .._composition import Step, Steps, compose_parts
from ..parts import ComposedAlgorithm
from ..parts.directions import implicit
from ..parts.provenance import ALIKE, READ, Provenance

__all__ = ["ttsa"]

PROVENANCE = Provenance("TTSA (Hong et al., 2023)", READ, ALIKE)


def ttsa(
    alpha: Step = None,
    beta: Step = None,
    batch: int = 64,
    hypergradient: Hypergradient = neumann(),
    steps: Steps = "auto",
) -> ComposedAlgorithm:
    """Step y_{t+1} = y_t - beta_t g_y(x_t, y_t), then x_{t+1} = x_t - alpha_t h(x_t, y_{t+1}).

    `diamond.schedules.ttsa` has the paper's decay: alpha (1 + t)^(-3/5), beta (1 + t)^(-2/5).
    """
    numbers = {"alpha": alpha, "beta": beta}
    return compose_parts(
        implicit(hypergradient),
        "plain",
        "gossip local",
        numbers,
        batch=batch,
        order="atc",
        steps=steps,
        update_order="y x",
    )
