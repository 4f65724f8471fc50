"""AmIGO (Arbel and Mairal, ICLR 2022): warm-started inner steps on y, then on z."""

from .._composition import Step, Steps, compose_parts
from ..parts import ComposedAlgorithm
from ..parts.directions import carried
from ..parts.provenance import ALIKE, READ, Provenance

__all__ = ["amigo"]

PROVENANCE = Provenance(
    "AmIGO (Arbel and Mairal, ICLR 2022)", READ + "; a fresh xi in every step of z", ALIKE
)


def amigo(
    alpha: Step = None,
    beta: Step = None,
    delta: Step = None,
    inner: int | None = None,
    batch: int = 64,
    steps: Steps = "auto",
) -> ComposedAlgorithm:
    """Make `inner` steps of y along g_y and of z along g_yy z - f_y; step x along f_x - g_xy z."""
    numbers = {"alpha": alpha, "beta": beta, "delta": delta}
    return compose_parts(
        carried(),
        "plain",
        "gossip local local",
        numbers,
        batch=batch,
        order="atc",
        steps=steps,
        update_order="y*inner z*inner x",
        inner=inner,
    )
