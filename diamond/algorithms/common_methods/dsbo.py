"""DSBO (Chen et al., 2022, arXiv 2206.05670): y and z in inner loops, by gossip."""

from .._composition import Step, Steps, compose_parts
from ..parts import ComposedAlgorithm
from ..parts.directions import carried
from ..parts.provenance import ALIKE, FAIRLY_CERTAIN, Provenance

__all__ = ["dsbo"]

PROVENANCE = Provenance("DSBO (Chen et al., 2022, arXiv 2206.05670)", FAIRLY_CERTAIN, ALIKE)


def dsbo(
    alpha: Step = None,
    beta: Step = None,
    delta: Step = None,
    inner: int | None = None,
    batch: int = 64,
    steps: Steps = "auto",
) -> ComposedAlgorithm:
    """Run `ma_dsbo` without trackers and without averaging: a bias of the order of the steps."""
    numbers = {"alpha": alpha, "beta": beta, "delta": delta}
    return compose_parts(
        carried(),
        "plain",
        "gossip gossip gossip",
        numbers,
        batch=batch,
        order="atc",
        steps=steps,
        update_order="y*inner z*inner x",
        inner=inner,
        lower_levels=("common",),
    )
