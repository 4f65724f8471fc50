"""C2DFB (Wen et al., 2024, arXiv 2410.14115): gradients only, compressed inner loops."""

from ...core.pytrees import Number
from ...schedules.step_schedules import Schedule
from .._composition import Step, Steps, compose_parts
from ..parts import ComposedAlgorithm
from ..parts.directions import penalty
from ..parts.provenance import ABSTRACT_FAIRLY, PENALIZED, Provenance

__all__ = ["c2dfb"]

PROVENANCE = Provenance(
    "C2DFB (Wen et al., 2024, arXiv 2410.14115)",
    ABSTRACT_FAIRLY + "; the channel of the network compresses x too",
    PENALIZED,
)


def c2dfb(
    alpha: Step = None,
    beta: Step = None,
    delta: Step = None,
    lam: Schedule | Number = 20.0,
    inner: int | None = None,
    batch: int = 64,
    steps: Steps = "auto",
) -> ComposedAlgorithm:
    """Make `inner` tracked steps of y and z of the penalty of `f2sa`, then one of x.

    On a network with a compressed channel (`network.through(channels.top(0.1))`), which sends
    differences to what the neighbours know, this is C2DFB: x, y, z and their trackers are mixed as
    s + gamma sum_j M_ij (shat_j - shat_i). On other networks it is `dsgda_gt` with inner loops.
    `inner` is 10 by default; trackers persist between rounds; bias of order 1 / lam.
    """
    numbers = {"alpha": alpha, "beta": beta, "delta": delta}
    return compose_parts(
        penalty(lam),
        "plain",
        "gt gt gt",
        numbers,
        batch=batch,
        order="paper",
        steps=steps,
        update_order="yz*inner x",
        inner=inner,
        lower_levels=("common",),
    )
