"""SCGD (Wang, Fang and Liu, 2017): a moving average below, its chain rule above."""

from ...hypergradient import neumann_sum
from .._composition import Step, Steps, compose_parts
from ..parts import ComposedAlgorithm
from ..parts.directions import implicit
from ..parts.provenance import CERTAIN, Provenance

__all__ = ["scgd"]

PROVENANCE = Provenance(
    "SCGD (Wang, Fang and Liu, 2017)", CERTAIN, "exact on compositional problems"
)


def scgd(
    alpha: Step = None, beta: Step = None, batch: int = 64, steps: Steps = "auto"
) -> ComposedAlgorithm:
    """Step y_{t+1} = y_t - beta g_y, then x_{t+1} = x_t - alpha (f_x - g_xy f_y)(x_t, y_{t+1}).

    For compositional problems, g = 1/2 |y - E h(x; zeta)|^2: y_{t+1} = (1 - beta) y_t + beta h is a
    moving average of h, and g_yy = I, so f_x - g_xy f_y = f_x + h_x' f_y is the hypergradient. On
    other problems x has a bias, since the inverse of g_yy is left out.
    """
    return compose_parts(
        implicit(neumann_sum(1, 1.0)),
        "plain",
        "gt local",
        {"alpha": alpha, "beta": beta},
        batch=batch,
        order="atc",
        steps=steps,
        update_order="y x",
    )
