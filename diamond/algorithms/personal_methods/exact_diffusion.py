"""Exact diffusion (Yuan et al., 2019; NIDS, D2; with hypergradients): one message, no bias."""

from ...hypergradient import Hypergradient, warm_start
from .._composition import Step, Steps, compose_parts
from ..parts import ComposedAlgorithm
from ..parts.directions import implicit
from ..parts.provenance import EXACT, READ, Provenance

__all__ = ["exact_diffusion"]

PROVENANCE = Provenance(
    "Exact diffusion (Yuan et al., 2019; NIDS, D2; with hypergradients)", READ, EXACT
)


def exact_diffusion(
    alpha: Step = None,
    beta: Step = None,
    batch: int = 64,
    hypergradient: Hypergradient = warm_start(),
    steps: Steps = "auto",
) -> ComposedAlgorithm:
    """Step psi_t = x_t - alpha d_t, phi_t = psi_t + x_t - psi_{t-1}, x_{t+1} = W phi_t.

    d is f_x or, with a lower level, the hypergradient; W = M or (I + M) / 2.
    """
    numbers = {"alpha": alpha, "beta": beta}
    return compose_parts(
        implicit(hypergradient),
        "plain",
        "ed local",
        numbers,
        batch=batch,
        order="atc",
        steps=steps,
        lower_levels=("personal", "none"),
    )
