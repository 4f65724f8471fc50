"""SOBA (Dagreou et al., NeurIPS 2022): x, y and z at once, one mini-batch."""

from .._composition import Step, Steps, compose_parts
from ..parts import ComposedAlgorithm
from ..parts.directions import carried
from ..parts.provenance import ALIKE, READ, Provenance

__all__ = ["soba"]

PROVENANCE = Provenance("SOBA (Dagreou et al., NeurIPS 2022)", READ, ALIKE)


def soba(
    alpha: Step = None,
    beta: Step = None,
    delta: Step = None,
    batch: int = 64,
    steps: Steps = "auto",
) -> ComposedAlgorithm:
    """Step x along f_x - g_xy z, y along g_y, z along g_yy z - f_y (z is -v of the paper)."""
    numbers = {"alpha": alpha, "beta": beta, "delta": delta}
    return compose_parts(
        carried(), "plain", "gossip local local", numbers, batch=batch, order="atc", steps=steps
    )
