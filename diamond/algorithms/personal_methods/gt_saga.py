"""GT-SAGA (Xin et al., 2020): a table of the last gradient of every block of rows, tracked."""

from .._composition import Step, Steps, compose_parts
from ..parts import ComposedAlgorithm
from ..parts.communication_rules import Order
from ..parts.directions import gradient
from ..parts.provenance import EXACT, READ_CODE, Provenance

__all__ = ["gt_saga"]

PROVENANCE = Provenance(
    "GT-SAGA (Xin et al., 2020)",
    READ_CODE
    + " of decent_bench, which mixes trackers before the step too and begins with a full table",
    EXACT,
)


def gt_saga(
    alpha: Step = None,
    batch: int = 64,
    order: Order | None = None,
    steps: Steps = "auto",
) -> ComposedAlgorithm:
    """Track d(b) - table(b) + mean of the table, b the drawn block.

    `batch` must divide the number of rows.
    """
    numbers = {"alpha": alpha}
    return compose_parts(
        gradient(),
        "saga",
        "gt",
        numbers,
        batch=batch,
        order=order,
        steps=steps,
        update_order="x",
        lower_levels=("none",),
    )
