"""stocBiO (Ji et al., ICML 2021): inner steps on y, then a Neumann sum on fresh rows."""

from ...hypergradient import Hypergradient, neumann_sum
from .._composition import Step, Steps
from ..parts import ComposedAlgorithm
from ..parts.provenance import ALIKE, READ, Provenance
from .bsa import bsa

__all__ = ["stocbio"]

PROVENANCE = Provenance(
    "stocBiO (Ji et al., ICML 2021)", READ + ", with equal batches for all factors", ALIKE
)


def stocbio(
    alpha: Step = None,
    beta: Step = None,
    inner: int | None = None,
    batch: int = 64,
    hypergradient: Hypergradient = neumann_sum(),
    steps: Steps = "auto",
) -> ComposedAlgorithm:
    """Run `bsa` with the whole Neumann sum instead of eq. (5): less noise for more products."""
    return bsa(alpha, beta, inner, batch, hypergradient, steps)
