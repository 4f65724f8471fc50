"""First rounds for an x that starts at random: first-order steps on mini-batches.

A representation has many minima. Quasi-Newton steps from a random start end in poor ones, because y
follows x at once. Steps of x and y together, on mini-batches, lead into the region of better ones.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

import jax
import jax.numpy as jnp

from ...auto.adaptive_optimizers import REST, DistanceOverGradients
from ...core import pytrees
from ...core.cost_counter import Cost
from ...core.pytrees import Number, Tree
from ...core.sampling import Sample
from ...interface.round_interface import Message
from ...problem import Objectives
from ...schedules.step_schedules import AtLeast, Constant, Delayed
from .._composition import WEIGHT
from .communication import local
from .composed import ComposedAlgorithm, ComposedState, Variable
from .directions import penalty
from .gradient_estimators import Average
from .lower_curvature import MARGIN, Curvature, CurvatureLearning, initial_curvature
from .variables import STATIC, Point

LAM = 20.0  # weight of the penalty
ROUNDS = 800
CURVATURE_ROUNDS = 4  # rounds between two estimates of the curvature


class OpeningState(NamedTuple):
    """State of an agent."""

    composed: ComposedState
    curvature: Curvature
    start: tuple[Tree, Tree]
    first_value: jax.Array  # of the objective at the start


class OpeningWork(NamedTuple):
    """Result of an agent's work in a round."""

    directions: Point
    curvature: Curvature


@pytrees.pytree
@dataclass(frozen=True)
class Opening:
    """A composed method whose direction of x is replaced by its exact mean over all agents.

    y and z move by 1 / (1.5 L), with L from power iteration. No constant has a unit.
    """

    method: ComposedAlgorithm
    rounds: int = field(default=ROUNDS, metadata=STATIC)

    def is_open(self, t: Number) -> jax.Array:
        """Return whether round t belongs to the opening; in round 0 the start is evaluated."""
        return (t >= 1) & (t <= self.rounds)

    def init(self, x: Tree, y: Tree) -> OpeningState:
        composed = self.method.init(x, y)
        zero = 0 * pytrees.norm(x)
        return OpeningState(composed, initial_curvature(y, zero, False), (x, y), zero + jnp.inf)

    def estimate(
        self, problem: Objectives, state: OpeningState, t: Number, sample: Sample
    ) -> tuple[OpeningWork, Cost]:
        """Return the directions of this round."""
        (directions, _), cost = self.method.stages[0].estimate(problem, state.composed, t, sample)
        point = state.composed.x, state.composed.y
        rule = CurvatureLearning((1.0, 1.0), moves_x=True, needs_z=False, carries_z=False)

        def measure() -> tuple[Curvature, jax.Array]:
            curvature, more = rule.update(problem, point, None, state.curvature, t, sample)
            return curvature, jnp.asarray(more.hvps, jnp.int32)

        rest = state.curvature, jnp.int32(0)
        curvature, hvps = jax.lax.cond(t % CURVATURE_ROUNDS == 1, measure, lambda: rest)
        length = 1 / (MARGIN * jnp.where(curvature.largest > 0, curvature.largest, jnp.inf))
        shorter = {name: pytrees.scale(length, getattr(directions, name)) for name in "yz"}
        cost = cost._replace(hvps=cost.hvps + hvps)
        return OpeningWork(directions._replace(**shorter), curvature), cost

    def update(
        self, state: OpeningState, work: OpeningWork, mean_direction: Tree, t: Number
    ) -> OpeningState:
        """Return the state after a round, with the mean over all agents of the directions of x.

        A step to where x, y or z is not a number is not taken.
        """
        directions, empty = work.directions._replace(x=mean_direction), Message({}, {})
        after = self.method.stages[0].update(state.composed, (directions, None), empty, empty, t)
        is_finite = pytrees.finite((after.x, after.y, after.z))
        composed = pytrees.select(is_finite, after, state.composed)
        return state._replace(composed=composed, curvature=work.curvature)


def first_order_opening(batch: int) -> Opening:
    """Return the opening: the lower level is a penalty, x moves by distance over gradients."""
    one = Constant(1.0)
    return Opening(
        ComposedAlgorithm(
            penalty(LAM),
            Average(AtLeast(0.1, Delayed(WEIGHT, REST))),
            x=Variable(one, local(), DistanceOverGradients(unit=0.0)),
            y=Variable(one, local()),
            z=Variable(one, local()),
            batch=batch,
        )
    )
