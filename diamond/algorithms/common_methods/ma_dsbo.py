"""MA-DSBO (Chen et al., ICML 2023): y and z in inner loops over the network, tracked."""

from .._composition import Step, Steps, compose_parts
from ..parts import ComposedAlgorithm
from ..parts.directions import carried
from ..parts.provenance import ABSTRACT_FAIRLY, EXACT, Provenance

__all__ = ["ma_dsbo"]

PROVENANCE = Provenance(
    "MA-DSBO (Chen et al., ICML 2023)",
    ABSTRACT_FAIRLY + "; trackers are kept, the paper restarts them",
    EXACT,
)


def ma_dsbo(
    alpha: Step = None,
    beta: Step = None,
    delta: Step = None,
    theta: Step = None,
    inner: int | None = None,
    batch: int = 64,
    steps: Steps = "auto",
) -> ComposedAlgorithm:
    """Make `inner` tracked steps of y, as many of z, then one of x; each step is an exchange.

    `inner` is 10 by default. Trackers persist between rounds: restarted trackers leave a bias that
    shrinks only with `inner`.
    """
    numbers = {"alpha": alpha, "beta": beta, "delta": delta, "theta": theta}
    return compose_parts(
        carried(),
        "average",
        "gt gt gt",
        numbers,
        batch=batch,
        order="atc",
        steps=steps,
        update_order="y*inner z*inner x",
        inner=inner,
        lower_levels=("common",),
    )
