"""A method that learns its step sizes while it runs: gradient tracking of x, y and z by need."""

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from ...auto.step_rule import RECENT, TINY, StepInputs, StepScalars, initial_scalars, propose_step
from ...core import tree
from ...core.cost import Cost
from ...core.sampling import Sample
from ...core.tree import Tree
from ...numbers.schedule import Number
from ...problem import Objectives, Problem
from ...rounds.algorithm import Message
from . import learned_estimate
from .learned_estimate import LAGGING, MARGIN, UNSETTLED, Estimate, Memory
from .point import STATIC, Point

COMMON_SHARE = 1 / 3  # of 1 / curvature: the steps of a y and z that are tracked
WARM_UP = 4  # rounds before x moves, where y and z cannot be solved for locally


class State(NamedTuple):
    """What an agent keeps between rounds."""

    x: Tree
    y: Tree
    z: Tree  # solves g_yy z = f_y
    direction: Point  # of x: a moving average; of y and z, where all agents share them
    tracker: Point
    previous_tracker: Tree  # of x
    start: Tree  # x_0
    average: Tree  # of x over the last rounds
    step: StepScalars
    memory: Memory


@tree.pytree
@dataclass(frozen=True)
class LearnedSteps:
    """One exchange a round; every number is learned."""

    boldness: Any = 1.0  # of the steps of x; smaller after a rollback
    share: Any = COMMON_SHARE
    prox: Any = None
    batch: int = field(default=64, metadata=STATIC)
    level: str = field(default="personal", metadata=STATIC)
    solves: tuple[str, ...] = field(default=("personal", "common", "none"), metadata=STATIC)
    times: int = field(default=1, metadata=STATIC)
    links: int = field(default=0, metadata=STATIC)
    early: bool = field(default=False, metadata=STATIC)
    about: ClassVar[str] = (
        "carried; average; x tracking, y and z local or tracking; xyz; x+x; "
        "f, g, g_yy, g_xy on a batch, where y lags g and g_yy on all rows"
    )

    @property
    def networks(self) -> str:
        """The widest kind of network; a prox of steps that differ needs balanced weights."""
        return "directed" if self.prox is None else "balanced"

    @property
    def stages(self) -> tuple["LearnedSteps", ...]:
        return (self,)

    def suited(self, problem: Problem) -> "LearnedSteps":
        """The method for this kind of lower level."""
        return replace(self, level=problem.lower_level, prox=problem.prox)

    def shrunk(self, factor: Number) -> "LearnedSteps":
        """The method with steps of x `factor` times as long."""
        return replace(self, boldness=self.boldness * factor)

    def numbers(self, t: Number) -> dict[str, Number]:
        return {}

    def learned(self, state: State) -> dict[str, jax.Array]:
        """Step sizes and curvature, as they are recorded in the history."""
        found = {"alpha": state.step.alpha}
        if self.level == "none":
            return found
        return found | {"beta": self._lower_step(state.memory.curvature)}

    @property
    def _begin(self) -> int:
        """The round in which x moves for the first time."""
        return WARM_UP if self.level == "common" else 0

    def _lower_step(self, curvature: jax.Array) -> jax.Array:
        share = self.share if self.level == "common" else 1 / MARGIN
        return share / jnp.maximum(curvature, TINY)

    def init(self, x: Tree, y: Tree) -> State:
        scalars = initial_scalars(x)
        zero = scalars.distance
        wave = lambda a: jnp.cos(1.7 * jnp.arange(a.size, dtype=a.dtype) + 0.3).reshape(a.shape)
        power_vector = learned_estimate.unit_vector(jax.tree.map(wave, y))
        memory = Memory(power_vector, *[zero] * 6)
        point = tree.zeros(Point(x, y, y) if self.level == "common" else Point(x))
        return State(x, y, tree.zeros(y), point, point, point.x, x, x, scalars, memory)

    def estimate(
        self, problem: Objectives, state: State, t: Number, sample: Sample
    ) -> tuple[Estimate, Cost]:
        if self.level == "none":
            return learned_estimate.estimate_without_lower_level(problem, state, t, sample)
        given = problem, state, t, sample, self._begin, self._lower_step
        return learned_estimate.estimate_directions(*given)

    def _propose(self, state: State, estimate: Estimate, t: Number) -> tuple[Point, StepScalars]:
        """Trackers and scalars of this round, before they are averaged."""
        tracker = tree.add(state.tracker, tree.sub(estimate.direction, state.direction))
        memory, begin = estimate.memory, self._begin
        delay = jnp.ones_like(state.step.delay)
        if self.level == "personal":
            solved = (memory.lag > LAGGING) & (memory.rest <= 0)
            delay = jnp.where(solved, 1.0, memory.lag)
        elif self.level == "common":
            delay = 2 * memory.lag / (MARGIN * self.share) + 1  # of y, then z; of the trackers
        unsettled = memory.residual > UNSETTLED * memory.reference
        inputs = StepInputs(
            state.x,
            state.start,
            state.average,
            tracker.x,
            state.previous_tracker,
            estimate.trusted_length,
            t,
            t <= begin,
            1 / learned_estimate.average_weight(t) - 1,
            self.boldness,
        )
        step = propose_step(state.step, inputs)
        step = step._replace(unsettled=unsettled.astype(delay.dtype), delay=delay)
        alpha = jnp.where(t < begin, 0.0, step.alpha)
        return tracker, _cast(step._replace(alpha=alpha), state.step)

    def outgoing(self, state: State, estimate: Estimate, t: Number) -> Message:
        tracker, step = self._propose(state, estimate, t)
        x = tree.axpy(-step.alpha, tracker.x, state.x)
        if self.prox is not None:
            x = self.prox(x, step.alpha)
        sent = {"x": x, "step": step}
        if self.level == "common":
            beta = self._lower_step(estimate.memory.curvature)
            sent["y"] = tree.axpy(-beta, tracker.y, state.y)
            sent["z"] = tree.axpy(-beta, tracker.z, state.z)
            sent["curvature"] = estimate.memory.curvature
        return Message(sent, tracker)

    def update(
        self, state: State, estimate: Estimate, told: Message, change: Message, t: Number
    ) -> State:
        mixed, tracker = tree.add(told, change)
        y, z, memory = estimate.y, estimate.z, estimate.memory
        if self.level == "common":
            y, z = mixed["y"], mixed["z"]
            memory = memory._replace(curvature=mixed["curvature"])
        after = State(
            mixed["x"],
            y,
            z,
            estimate.direction,
            tracker,
            told.total.x,
            state.start,
            tree.axpy(RECENT, tree.sub(state.x, state.average), state.average),
            mixed["step"],
            memory,
        )
        return _cast(after, state)


def _cast(new: Tree, old: Tree) -> Tree:
    """`new` in the types of `old`: a round number is an integer, whose roots are in double."""
    return jax.tree.map(lambda new, old: jnp.asarray(new, old.dtype), new, old)
