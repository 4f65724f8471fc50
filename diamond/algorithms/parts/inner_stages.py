"""Stages of a recursive estimate that is updated through inner steps on y.

x moves along p; then, `inner` times, p and v are updated to the current x and y by differences on
one mini-batch, and y moves along v.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from ...core import pytrees
from ...core.cost_counter import Cost
from ...core.pytrees import Number, Tree
from ...core.sampling import Sample
from ...interface.round_interface import Message
from ...problem import Objectives
from .learnable import LearnableStage
from .variables import Point


class InnerStagesState(NamedTuple):
    x: Tree
    y: Tree
    last: Point  # point of p and v
    old: Point  # p, v


@dataclass(frozen=True)
class OuterStage(LearnableStage):
    """Stage that moves x along p; every `period` rounds p and v use all rows."""

    method: Any  # alpha, beta, along, period
    repeats = 1
    sends_before_gradient = False

    def x_direction(self, estimate: Any, state: InnerStagesState) -> Tree:
        return estimate[0].x

    @property
    def hessian_batches(self) -> int:
        return int(self.method.along.hessian_batches)

    def estimate(
        self, problem: Objectives, state: InnerStagesState, t: Number, sample: Sample
    ) -> tuple[tuple[Point, Point], Cost]:
        point = Point(state.x, state.y)

        def reset() -> Any:
            (new,), cost = self.method.along(problem, [point], sample.full(), "xy", t)
            return (new, point), Cost(*(jnp.asarray(c, jnp.uint32) for c in cost))

        nothing = Cost(*(jnp.zeros((), jnp.uint32) for _ in Cost._fields))
        unchanged = (state.old, state.last), nothing
        return jax.lax.cond(t % self.method.period == 0, reset, lambda: unchanged)

    def outgoing(
        self, state: InnerStagesState, estimate: tuple[Point, Point], t: Number
    ) -> Message:
        return Message(pytrees.axpy(-self.method.alpha(t), estimate[0].x, state.x))

    def update(
        self, state: InnerStagesState, estimate: Any, sent: Message, change: Message, t: Number
    ) -> InnerStagesState:
        directions, last = estimate
        return InnerStagesState(
            pytrees.add(sent.average, change.average), state.y, last, directions
        )


@dataclass(frozen=True)
class InnerStage(LearnableStage):
    """Stage that updates p and v to the current x and y, and moves y along v."""

    method: Any  # alpha, beta, along, period
    repeats: int = 1
    sends_before_gradient = True
    moves_x = False

    @property
    def hessian_batches(self) -> int:
        return int(self.method.along.hessian_batches)

    def estimate(
        self, problem: Objectives, state: InnerStagesState, t: Number, sample: Sample
    ) -> tuple[tuple[Point, Point], Cost]:
        point = Point(state.x, state.y)
        (new, previous), cost = self.method.along(problem, [point, state.last], sample, "xy", t)
        return (pytrees.add(state.old, pytrees.sub(new, previous)), point), cost

    def outgoing(self, state: InnerStagesState, estimate: Any, t: Number) -> Message:
        return Message()

    def update(
        self, state: InnerStagesState, estimate: Any, sent: Message, change: Message, t: Number
    ) -> InnerStagesState:
        directions, point = estimate
        y = pytrees.axpy(-self.method.beta(t), directions.y, state.y)
        return InnerStagesState(state.x, y, point, directions)
