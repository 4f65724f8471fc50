"""SABA (Dagreou et al., NeurIPS 2022): SOBA with a table of the last value of every block."""

from .._composition import Step, Steps, compose_parts
from ..parts import ComposedAlgorithm
from ..parts.directions import carried
from ..parts.provenance import ALIKE, READ, Provenance

__all__ = ["saba"]

PROVENANCE = Provenance(
    "SABA (Dagreou et al., NeurIPS 2022)", READ + ", all rows of g in one table", ALIKE
)


def saba(
    alpha: Step = None,
    beta: Step = None,
    delta: Step = None,
    batch: int = 64,
    steps: Steps = "auto",
) -> ComposedAlgorithm:
    """Step along d(b) - table(b) + mean of the table, b the drawn block of rows.

    The table needs, for every block, twice the memory of x, y and z. `batch` must divide the rows.
    """
    numbers = {"alpha": alpha, "beta": beta, "delta": delta}
    return compose_parts(
        carried(), "saga", "gossip local local", numbers, batch=batch, order="atc", steps=steps
    )
