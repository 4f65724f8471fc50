"""Gossip-DSBO (Yang et al., NeurIPS 2022): averages of gradients and of both matrices by gossip."""

from dataclasses import dataclass, field
from typing import Any

from ...core import pytrees
from ...core.pytrees import Number, Tree
from ...core.sampling import Sample
from ...interface.round_interface import Message
from ...problem import Objectives
from ...schedules.step_schedules import Schedule, weight
from .._composition import Step, Steps, choose
from ..parts.explicit_matrices import (
    AveragesState,
    Ingredients,
    hypergradient,
    ingredients,
    unravel_like,
    zero_ingredients,
)
from ..parts.provenance import ABSTRACT_FAIRLY, ALIKE, Provenance
from ..parts.single_stage import SingleStageMethod, floor

__all__ = ["gossip_dsbo"]

PROVENANCE = Provenance(
    "Gossip-DSBO (Yang et al., NeurIPS 2022)",
    ABSTRACT_FAIRLY + "; a solve with the averaged g_yy for the Neumann product over several",
    ALIKE,
)


@pytrees.pytree
@dataclass(frozen=True)
class GossipDsbo(SingleStageMethod):
    alpha: Schedule
    beta: Schedule
    theta: Schedule
    floor: Any
    batch: int = field(metadata={"static": True})
    lower_levels: tuple[str, ...] = field(default=("common",), metadata={"static": True})
    SCHEDULES = "alpha", "beta", "theta"
    about = (
        "matrices; average, by gossip; gossip; xy; x+y+f_x+f_y+g_y+g_xy+g_yy; "
        "f, g, all of g_yy and g_xy on a batch"
    )

    def init(self, x: Tree, y: Tree) -> AveragesState:
        return AveragesState(x, y, zero_ingredients(x, y))

    def estimate(self, problem: Objectives, state: AveragesState, t: Number, sample: Sample) -> Any:
        return ingredients(problem, state.x, state.y, sample)

    def x_direction(self, estimate: Ingredients, state: AveragesState) -> Tree:
        return unravel_like(hypergradient(state.averages, self.floor), state.x)

    def outgoing(self, state: AveragesState, estimate: Ingredients, t: Number) -> Message:
        return Message(state)

    def update(
        self, state: AveragesState, estimate: Ingredients, sent: Message, change: Message, t: Number
    ) -> AveragesState:
        x, y, averages = pytrees.add(sent.average, change.average)
        averages = pytrees.axpy(weight(self.theta, t), pytrees.sub(estimate, averages), averages)
        h = unravel_like(hypergradient(averages, self.floor), x)
        moved = pytrees.axpy(-self.beta(t), unravel_like(averages.g_y, y), y)
        return AveragesState(pytrees.axpy(-self.alpha(t), h, x), moved, averages)


def gossip_dsbo(
    alpha: Step = None,
    beta: Step = None,
    theta: Step = None,
    batch: int = 64,
    steps: Steps = "auto",
) -> GossipDsbo:
    """Average q <- (1 - theta) sum_j M_ij q_j + theta q(fresh) for f_x, f_y, g_y, g_xy, g_yy.

    In round 0 theta is 1: the first averages are those of fresh rows. x moves along
    f_x - g_xy [g_yy]^-1 f_y of these averages, y along g_y, both mixed. Biased by theta and the
    steps if agents differ. Agents send whole matrices, so y must be small.
    """
    _, s = choose(steps, "paper", alpha=alpha, beta=beta, theta=theta)
    return GossipDsbo(s["alpha"], s["beta"], s["theta"], floor, batch)
