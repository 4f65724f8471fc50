"""MA-SOBA (Chen et al., 2023): SOBA with an averaged direction of x."""

from .._composition import Step, Steps, compose_parts
from ..parts import ComposedAlgorithm
from ..parts.directions import carried
from ..parts.provenance import ALIKE, READ, Provenance

__all__ = ["ma_soba"]

PROVENANCE = Provenance("MA-SOBA (Chen et al., 2023)", READ + ", all three at once", ALIKE)


def ma_soba(
    alpha: Step = None,
    beta: Step = None,
    delta: Step = None,
    theta: Step = None,
    batch: int = 64,
    steps: Steps = "auto",
) -> ComposedAlgorithm:
    """Run `soba` with x along r_t = (1 - theta) r_{t-1} + theta (f_x - g_xy z)."""
    numbers = {"alpha": alpha, "beta": beta, "delta": delta, "theta": theta}
    return compose_parts(
        carried(), "average", "gossip local local", numbers, batch=batch, order="atc", steps=steps
    )
