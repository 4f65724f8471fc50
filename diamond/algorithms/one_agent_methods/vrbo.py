"""VRBO (Yang et al., NeurIPS 2021): SPIDER, with inner steps on y that update both estimates."""

from dataclasses import dataclass, field
from typing import Any

from ...core import pytrees
from ...core.pytrees import Tree
from ...hypergradient import Hypergradient, neumann_sum
from ...schedules.step_schedules import Schedule
from .._composition import Step, Steps, choose
from ..parts.directions import Implicit, implicit
from ..parts.gradient_estimators import recursive
from ..parts.inner_stages import InnerStage, InnerStagesState, OuterStage
from ..parts.provenance import ALIKE, READ_CODE, Provenance
from ..parts.single_stage import SingleStageMethod
from ..parts.variables import Point

__all__ = ["vrbo"]

PROVENANCE = Provenance(
    "VRBO (Yang et al., NeurIPS 2021)", READ_CODE + " of its authors, MRVRBO", ALIKE
)


@pytrees.pytree
@dataclass(frozen=True)
class Vrbo(SingleStageMethod):
    alpha: Schedule
    beta: Schedule
    along: Implicit
    period: Any
    inner: int = field(metadata={"static": True})
    batch: int = field(metadata={"static": True})
    lower_levels: tuple[str, ...] = field(default=("personal",), metadata={"static": True})
    about = (
        "implicit; recursive; x gossip, y local; x y*inner; x; "
        "inner times f, g, chain, g_xy on a batch at two points"
    )

    @property
    def stages(self) -> tuple[Any, ...]:
        return OuterStage(self), InnerStage(self, self.inner)

    @property
    def hypergradient(self) -> Any:
        return self.along.hypergradient

    def init(self, x: Tree, y: Tree) -> InnerStagesState:
        return InnerStagesState(x, y, Point(x, y), pytrees.zeros(Point(x, y)))


def vrbo(
    alpha: Step = None,
    beta: Step = None,
    inner: int = 3,
    period: int | None = None,
    batch: int = 64,
    hypergradient: Hypergradient = neumann_sum(),
    steps: Steps = "auto",
) -> Vrbo:
    """Step x along p, then `inner` times: p += h(now) - h(last), v += g_y(now) - g_y(last), step y.

    Every `period` rounds, by default the root of the rows, p and v are computed on all rows. The
    first inner step sees the change of x (in one public code it does not).
    """
    _, s = choose(steps, "atc", alpha=alpha, beta=beta)
    q = recursive(period).period
    return Vrbo(s["alpha"], s["beta"], implicit(hypergradient), q, inner, batch)
