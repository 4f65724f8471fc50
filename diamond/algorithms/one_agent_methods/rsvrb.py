"""RSVRB (Guo et al., 2021, arXiv 2105.02266): momentum on all parts of the hypergradient."""

from dataclasses import dataclass

from ...core import pytrees
from ...core.pytrees import Number
from ...interface.round_interface import Message
from .._composition import Step, Steps, choose
from ..parts.explicit_matrices import Ingredients, MatrixMomentum, MatrixState, unravel_like
from ..parts.provenance import ABSTRACT_FAIRLY, ALIKE, Provenance
from ..parts.single_stage import floor

__all__ = ["rsvrb"]

PROVENANCE = Provenance(
    "RSVRB (Guo et al., 2021, arXiv 2105.02266)", ABSTRACT_FAIRLY + ", of one task", ALIKE
)


@pytrees.pytree
@dataclass(frozen=True)
class Rsvrb(MatrixMomentum):
    about = (
        "matrices; momentum on all; x gossip, y local; xy; x; "
        "f, g, all of g_yy and g_xy on a batch at two points"
    )

    def update(
        self, state: MatrixState, estimate: Ingredients, sent: Message, change: Message, t: Number
    ) -> MatrixState:
        x = pytrees.add(sent.average, change.average)
        y = pytrees.axpy(-self.beta(t), unravel_like(estimate.g_y, state.y), state.y)
        return MatrixState(x, y, (state.x, state.y), estimate)


def rsvrb(
    alpha: Step = None,
    beta: Step = None,
    eta: Step = None,
    batch: int = 64,
    steps: Steps = "auto",
) -> Rsvrb:
    """Step x along a - V W^-1 b; a, b, V, W are f_x, f_y, g_xy, g_yy, each with momentum (6).

    W has no eigenvalue below mu / 2; y moves along g_y with momentum. For small y.
    """
    _, s = choose(steps, "atc", alpha=alpha, beta=beta, eta=eta)
    return Rsvrb(s["alpha"], s["beta"], s["eta"], floor, batch)
