"""S3LDBO (Yin et al., 2026, arXiv 2605.31311): `sldbo` that skips the derivatives of rounds."""

from dataclasses import replace

from ...core.pytrees import Number
from .._composition import Step, Steps
from ..parts import ComposedAlgorithm
from ..parts.gradient_estimators import snapshot
from ..parts.provenance import EXACT, Provenance
from .sldbo import sldbo

__all__ = ["s3ldbo"]

PROVENANCE = Provenance(
    "S3LDBO (Yin et al., 2026, arXiv 2605.31311)",
    "abstract and a public summary: SLDBO with tracked directions at a snapshot; that all agents "
    "draw alike is ours",
    EXACT,
)


def s3ldbo(
    alpha: Step = None,
    beta: Step = None,
    delta: Step = None,
    radius: Number | None = None,
    probability: Number = 0.5,
    batch: int = 64,
    steps: Steps = "auto",
) -> ComposedAlgorithm:
    """Run `sldbo` with the directions of a snapshot, renewed with `probability` in every round.

    In other rounds agents exchange and move, but compute no gradient and no product; trackers then
    change by mixing alone. With `probability` 1 this is `sldbo`.
    """
    method = sldbo(alpha, beta, delta, radius, batch, steps)
    return replace(method, estimator=snapshot(probability))
