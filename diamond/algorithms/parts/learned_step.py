"""Step size of x, learned from sketches of x and of its directions."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from ...auto.local_solver import run_if
from ...auto.probed_length import newton_length, nonzero_reference, trusted_length
from ...auto.sketch import sketch
from ...auto.step_learning import (
    RECENT,
    TRUST,
    StepInputs,
    StepScalars,
    initial_scalars,
    propose_step,
)
from ...core import pytrees
from ...core.cost_counter import Cost
from ...core.pytrees import Number, Tree
from ...core.sampling import Sample
from ...problem import Objectives
from .local_solution import LAGGING
from .lower_curvature import Curvature, cast_like, rounds_to_relax


class StepMemory(NamedTuple):
    """Data from which the step size of x is learned."""

    scalars: StepScalars  # averaged with the neighbors in every round
    start: jax.Array  # sketch of x_0
    average: jax.Array  # moving average of the sketch of x
    direction: jax.Array  # sketch of the previous direction, and its squared norm
    tracked: jax.Array  # their network mean, averaged with neighbors
    tracker: jax.Array  # the previous network mean, as used by the rule


def initial_memory(x: Tree) -> StepMemory:
    """Return the memory before the first round."""
    start, scalars = sketch(x), initial_scalars(x)
    empty = jnp.zeros_like(start)
    tracked = jnp.append(empty, scalars.distance)
    return StepMemory(scalars, start, start, tracked, tracked, empty)


class LearnedStep(NamedTuple):
    """Rule by which a method learns the step size of x.

    Attributes:
        level: kind of the lower level.
        works_locally: whether y is solved for when it lags.
        lower_steps: steps of y per round.
        lower_step: (share, caution) of `rounds_to_relax`.
        first_move: first round in which x moves.
        boldness: below 1 after a rollback.
        statistics_weight: weight of the newest direction in the smoothed tracker.
        smoothing_delay: rounds by which averaged directions lag.
    """

    level: str
    works_locally: bool
    lower_steps: int
    lower_step: tuple[Any, Any]
    first_move: int
    boldness: Any
    statistics_weight: float
    smoothing_delay: Any

    def choose(
        self,
        problem: Objectives,
        point: tuple[Tree, Tree],
        curvature: Curvature | None,
        previous: StepMemory,
        direction: Tree,
        tracker: Tree | None,
        lower_gradient: Tree | None,
        t: Number,
        sample: Sample,
    ) -> tuple[Curvature | None, StepMemory, Cost]:
        """Choose the step size of x for this round."""
        (x, y), scalars = point, previous.scalars
        first, ramping = jnp.asarray(t <= self.first_move), scalars.ramping > 0.5
        if curvature is None:
            gradient = lambda x: jax.grad(problem.f)(x, None, sample.upper)
            rows, value = problem.valid.size(sample.upper), gradient(x)
            reference = most = pytrees.norm(value)
            delay = jnp.ones_like(reference)
            extra_gradients = jnp.ones_like(ramping)
        else:
            gradient = lambda x: jax.grad(problem.g, 1)(x, y, sample.lower)
            rows, work = problem.train.size(sample.lower), curvature.work
            value, extra_gradients = lower_gradient, jnp.zeros_like(ramping)
            if value is None:
                needed, extra_gradients = pytrees.mapped_with(ramping, scalars.alpha), ramping
                value = run_if(needed, lambda: gradient(x), pytrees.zeros(y))
            residual = pytrees.norm(value)
            larger_norm = jnp.maximum(work.reference, residual)
            reference = jnp.where(t == 0, larger_norm, work.reference)
            reference = nonzero_reference(reference, curvature.largest, y)
            work = work._replace(reference=reference, residual=residual)
            curvature = cast_like(curvature._replace(work=work), curvature)
            most, delay = TRUST * reference, self.delay(curvature)
        length, probes = trusted_length(
            gradient, x, previous.start, direction, value, most, reference, scalars, first
        )
        spent = Cost()
        if self.works_locally and curvature is not None:
            newton, response_curvature, spent = newton_length(
                problem, x, y, direction, needed=first, sample=sample
            )
            length = jnp.where(first, jnp.minimum(length, newton), length)
            response_lag = rounds_to_relax(self.lower_step, curvature.largest, response_curvature)
            response_lag = jnp.where(first, response_lag, curvature.response_lag)
            curvature = cast_like(curvature._replace(response_lag=response_lag), curvature)
        inputs, memory = self._inputs(x, previous, direction, tracker, length=length, t=t)
        step = propose_step(scalars, inputs)
        alpha = jnp.where(t < self.first_move, 0.0, step.alpha)
        step = step._replace(alpha=alpha, delay=delay)
        cost = pytrees.add(spent, Cost(0, rows * (probes + extra_gradients), 0, rows * first))
        return curvature, cast_like(memory._replace(scalars=step), previous), cost

    def delay(self, curvature: Curvature) -> jax.Array:
        """Return the number of rounds in which y follows x."""
        lag = curvature.slowest / self.lower_steps
        if self.level == "common":
            return 2 * lag + 1  # of y, then of z and the trackers
        return jnp.where((lag > LAGGING) & (curvature.work.rest <= 0), 1.0, lag)

    def _inputs(
        self,
        x: Tree,
        previous: StepMemory,
        direction: Tree,
        method_tracker: Tree | None,
        *,
        length: jax.Array,
        t: Number,
    ) -> tuple[StepInputs, StepMemory]:
        """Return the inputs of the step rule, as sketches, and the new memory."""
        first, weight = jnp.asarray(t <= self.first_move), self.statistics_weight
        position = sketch(x)
        own_direction = jnp.append(sketch(direction), pytrees.dot(direction, direction))
        change = own_direction - previous.direction
        tracked = previous.tracked + change
        newest = tracked[:-1] if method_tracker is None else sketch(method_tracker) + change[:-1]
        squared = jnp.maximum(
            tracked[-1], own_direction[-1]
        )  # of the network, at least the agent's own
        magnitude = jnp.sqrt(squared) if method_tracker is None else None
        smoothed = previous.tracker + weight * (newest - previous.tracker)
        tracker = jnp.where(first, newest, smoothed)
        inputs = StepInputs(
            position,
            previous.start,
            previous.average,
            tracker,
            previous.tracker,
            length,
            t,
            first,
            self.smoothing_delay + 1 / weight - 1,
            magnitude,
            newest,
            boldness=self.boldness,
        )
        average = previous.average + RECENT * (position - previous.average)
        return inputs, StepMemory(
            previous.scalars, previous.start, average, own_direction, tracked, tracker
        )
