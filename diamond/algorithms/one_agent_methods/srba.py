"""SRBA (Dagreou et al., AISTATS 2024): recursive differences of SOBA's directions."""

from .._composition import Step, Steps, compose_parts
from ..parts import ComposedAlgorithm
from ..parts.directions import carried
from ..parts.provenance import ALIKE, READ_CODE, Provenance

__all__ = ["srba"]

PROVENANCE = Provenance(
    "SRBA (Dagreou et al., AISTATS 2024)", READ_CODE + " of its authors, benchmark_bilevel", ALIKE
)


def srba(
    alpha: Step = None,
    beta: Step = None,
    delta: Step = None,
    period: int | None = None,
    batch: int = 64,
    steps: Steps = "auto",
) -> ComposedAlgorithm:
    """Run `soba` with directions on all rows every `period` rounds, and differences in between.

    d_t = d_{t-1} + d(x_t, y_t, z_t) - d(x_{t-1}, y_{t-1}, z_{t-1}) on one mini-batch, for x, y and
    z. `period` is by default the root of the rows.
    """
    numbers = {"alpha": alpha, "beta": beta, "delta": delta}
    return compose_parts(
        carried(),
        "recursive",
        "gossip local local",
        numbers,
        batch=batch,
        order="atc",
        steps=steps,
        period=period,
    )
