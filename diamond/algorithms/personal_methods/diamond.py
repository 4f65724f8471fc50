"""DIAMOND (Qiu et al., INFOCOM 2023): momentum on both gradients, the upper one tracked."""

from ...hypergradient import Hypergradient, warm_start
from .._composition import Step, Steps, compose_parts
from ..parts import ComposedAlgorithm
from ..parts.communication_rules import Order
from ..parts.directions import implicit
from ..parts.provenance import EXACT, READ, Provenance

__all__ = ["diamond"]

PROVENANCE = Provenance("DIAMOND (Qiu et al., INFOCOM 2023)", READ, EXACT)


def diamond(
    alpha: Step = None,
    beta: Step = None,
    eta: Step = None,
    gamma: Step = None,
    batch: int = 64,
    hypergradient: Hypergradient = warm_start(),
    order: Order | None = None,
    steps: Steps = "auto",
) -> ComposedAlgorithm:
    """Run Algorithm 1 of the paper, eqs. (6) to (10).

        p_t = h(x_t, y_t; xi_t)     + (1 - eta_t)   (p_{t-1} - h(x_{t-1}, y_{t-1}; xi_t))
        v_t = g_y(x_t, y_t; zeta_t) + (1 - gamma_t) (v_{t-1} - g_y(x_{t-1}, y_{t-1}; zeta_t))
        u_t = sum_j M_ij u_{j,t-1} + p_t - p_{t-1}
        x_{t+1} = sum_j M_ij x_{j,t} - alpha_t u_t,    y_{t+1} = y_t - beta_t v_t

    with h the hypergradient. `diamond.schedules.paper` has the paper's four schedules. Without a
    lower level this is GT-STORM.

    Args:
        alpha: step of x, a number or a schedule; None (default): learned.
        beta: step of y, likewise; must stay below 2 / L_g.
        eta, gamma: momentum weights of x and y, 1 in round 0 and limited to [0, 1];
            None: (1 + t / 10)^(-2/3).
        batch: rows in a mini-batch.
        hypergradient: estimator of `diamond.hypergradient`.
        order: "paper" mixes x before the step, "atc" after it; None: "atc" if alpha is learned.
        steps: "auto", or a mapping with values for numbers that are None.

    Returns:
        The method.
    """
    numbers = {"alpha": alpha, "beta": beta, "eta": eta, "gamma": gamma}
    return compose_parts(
        implicit(hypergradient),
        "momentum",
        "gt local",
        numbers,
        batch=batch,
        order=order,
        steps=steps,
        lower_levels=("personal", "none"),
    )
