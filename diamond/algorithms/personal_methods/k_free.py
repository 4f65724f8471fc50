"""K-free DIAMOND (ours, experimental): the solution z_i of g_yy z = f_y is a variable."""

from .._composition import Step, Steps, compose_parts
from ..parts import ComposedAlgorithm
from ..parts.communication_rules import Order
from ..parts.directions import carried
from ..parts.provenance import EXACT, Provenance

__all__ = ["k_free"]

PROVENANCE = Provenance("K-free DIAMOND (ours, experimental)", "ours", EXACT)


def k_free(
    alpha: Step = None,
    beta: Step = None,
    eta: Step = None,
    gamma: Step = None,
    delta: Step = None,
    batch: int = 64,
    order: Order | None = None,
    steps: Steps = "auto",
) -> ComposedAlgorithm:
    """Run DIAMOND with [g_yy]^-1 f_y as a third local variable: no chain, no K, no L_g.

        p_t ~ f_x(xi) - g_xy(zeta_0) z,   v_t ~ g_y(zeta),   w_t ~ g_yy(zeta_0) z - f_y(xi)

    each with momentum as in eqs. (6) and (7), gamma for v and w; u_t tracks p_t as in eq. (8); x
    and y move as in eqs. (9) and (10), and z_{t+1} = z_t - delta_t w_t, delta = beta by default.
    beta and delta must stay below 2 / L_g. alpha must be small enough for z to follow: at a large
    condition number smaller than DIAMOND's, whose truncated chain damps (benchmarks/k_free.py). A
    round takes three mini-batches instead of k + 3. No published guarantee is known.
    """
    numbers = {"alpha": alpha, "beta": beta, "eta": eta, "gamma": gamma, "delta": delta}
    return compose_parts(
        carried(), "momentum", "gt local local", numbers, batch=batch, order=order, steps=steps
    )
