"""Numbers that a method learns while it runs, whatever the method is.

`LearnedNumbers` is an algorithm around an algorithm. Its state holds the state of the method and
what was learned. In every round it fills in the numbers that the method left open:

    alpha      by `diamond.auto.step_rule`, from sketches of x and of its directions
    beta       share / (MARGIN L), of y and z, with L the largest eigenvalue of g_yy
    lipschitz  SAFETY L, of a chain of products with g_yy
    floor      FLOOR L, of the eigenvalues of an estimated g_yy
    z          about the solution of g_yy z = f_y, for a hypergradient with a warm start

L comes from one product a round with a carried vector (power iteration). Another product, along z,
tells in how many rounds y follows x; where it lags, the agent works locally (`local_work`).
"""

import math
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from ...auto.local_solver import run_if
from ...auto.sketch import sketch
from ...auto.step_rule import (
    RECENT,
    TINY,
    TRUST,
    StepInputs,
    StepScalars,
    initial_scalars,
    propose_step,
)
from ...auto.trusted_length import (
    newton_length,
    sound_reference,
    trusted_length,
    unit_vector,
)
from ...auto.watch import loss_monitor
from ...core import tree
from ...core.cost import Cost
from ...core.sampling import Sample
from ...core.tree import Tree
from ...numbers.learned import learned_names, with_numbers
from ...numbers.open_numbers import Deferred, Found, Setting
from ...numbers.schedule import Number
from ...problem import Objectives, Problem
from ...rounds.algorithm import Message
from .local_work import LAGGING, WorkMemory, work_locally
from .point import STATIC

MARGIN = 1.5  # between 1 / L and the steps of y and z
SAFETY = 2.0  # between L and the bound of the chain
FLOOR = 1e-3  # of L
POWER_STEPS_AT_START = 4
MIXED = 0.1  # of the direction of z, in power iteration: the steepest direction may change
FORGETTING = 0.99  # of the largest curvature seen, a round
UNSETTLED = 2.0  # times its norm at the start: a lower gradient that stops the growth of steps
MOST_CAUTION = 4.0  # of y and z after rollbacks: where they lag, x overshoots at any step
WARM_UP = 4  # steps of y before x moves, where y cannot be solved for locally


class Curvature(NamedTuple):
    """What an agent knows of its lower level."""

    power_vector: Tree  # about the eigenvector of g_yy to its largest eigenvalue
    largest: jax.Array  # that eigenvalue
    lag: jax.Array  # rounds in which gradient steps relax, along z
    response_lag: jax.Array  # the same along the way of y after the first step of x
    z: Tree  # about the solution of g_yy z = f_y; None where the method itself has it
    work: WorkMemory

    @property
    def slowest(self) -> jax.Array:
        """Rounds in which gradient steps of y relax."""
        return jnp.maximum(self.lag, self.response_lag)


class StepMemory(NamedTuple):
    """What the step size of x is learned from."""

    scalars: StepScalars  # averaged with the neighbors in every round
    start: jax.Array  # the sketch of x_0
    average: jax.Array  # of the sketch of x over the last rounds
    direction: jax.Array  # the sketch of the direction of the round before, and its squared norm
    tracked: jax.Array  # the mean of these over the network, averaged with neighbors
    tracker: jax.Array  # the same of the round before, as the rule has seen it


class State(NamedTuple):
    """x and y, what else the method keeps, and what was learned."""

    x: Tree
    y: Tree
    rest: Any  # the state of the method without x and y
    curvature: Curvature | None
    step: StepMemory | None

    @property
    def method(self) -> Any:
        """The state of the method."""
        return self.rest._replace(x=self.x, y=self.y)

    @property
    def z(self) -> Tree:
        return getattr(self.rest, "z", None)

    @property
    def p(self) -> Tree:
        return getattr(self.rest, "p", None)

    @property
    def v(self) -> Tree:
        return getattr(self.rest, "v", None)

    @property
    def u(self) -> Tree:
        return getattr(self.rest, "u", None)


def _state(method: Any, curvature: Curvature | None, step: StepMemory | None) -> State:
    return State(method.x, method.y, method._replace(x=None, y=None), curvature, step)


class Estimate(NamedTuple):
    """The gradient work of a stage, and the state that it started from."""

    method: Any
    before: Any  # the state of the method after local work
    curvature: Curvature | None
    step: StepMemory | None


@tree.pytree
@dataclass(frozen=True)
class LearnedNumbers:
    """A method with numbers that are learned."""

    method: Any
    share: Any  # of 1 / (MARGIN L): the steps of y and z that this network takes
    caution: Any = 1.0  # above 1 after a rollback: shorter steps
    monitor: Any = 0.0  # stands for the monitor of the upper loss, where the run has one
    level: str = field(default="personal", metadata=STATIC)

    @property
    def names(self) -> set[str]:
        return learned_names(self.method)

    @property
    def batch(self) -> int:
        return int(self.method.batch)

    @property
    def solves(self) -> tuple[str, ...]:
        return tuple(self.method.solves)

    @property
    def networks(self) -> str:
        return str(getattr(self.method, "networks", "symmetric"))

    @property
    def hypergradient(self) -> Any:
        return getattr(self.method, "hypergradient", None)

    @property
    def stages(self) -> tuple["LearnedStage", ...]:
        return tuple(LearnedStage(self, k) for k in range(len(self.method.stages)))

    @property
    def lower_steps(self) -> int:
        """Steps of y in a round."""
        return max(stage.times for stage in self.method.stages)

    @property
    def carries_z(self) -> bool:
        """Whether z is carried beside the method: for its hypergradient, or for the lag of y."""
        return bool({"alpha", "z"} & self.names)

    @property
    def works_locally(self) -> bool:
        """Whether y is solved for where it lags: where it is the agent's own and x is learned."""
        return self.level == "personal" and "alpha" in self.names

    @property
    def first_move(self) -> int:
        """The round in which x moves for the first time."""
        return math.ceil(WARM_UP / self.lower_steps) if self.level == "common" else 0

    @property
    def lower_caution(self) -> Any:
        """The factor by which steps of y and z are shorter after rollbacks."""
        return jnp.minimum(self.caution, MOST_CAUTION)

    def shrunk(self, factor: Number) -> "LearnedNumbers":
        """The method with steps `factor` times as long."""
        return replace(self, method=self.method.shrunk(factor), caution=self.caution / factor)

    def numbers(self, t: Number) -> dict[str, Number]:
        """The numbers that are not learned."""
        given = self.method.numbers(t)
        return {name: value for name, value in given.items() if not learned_names(value)}

    def learned(self, state: State) -> dict[str, jax.Array]:
        """Step sizes, as they are recorded in the history."""
        found = {}
        if state.step is not None:
            found["alpha"] = state.step.scalars.alpha
        if state.curvature is not None and "beta" in self.names:
            known = state.curvature.largest > 0
            found["beta"] = jnp.where(known, self.values(state.curvature)["beta"], 0.0)
        return found

    def values(self, curvature: Curvature | None) -> dict[str, Any]:
        """Numbers at this curvature of g_yy."""
        if curvature is None:
            return {}
        largest = jnp.maximum(self.lower_caution * curvature.largest, TINY)
        return {
            "beta": self.share / (MARGIN * largest),
            "lipschitz": SAFETY * largest,
            "floor": FLOOR * largest,
            "z": curvature.z,
        }

    def init(self, x: Tree, y: Tree) -> State:
        method, scalars = self.method.init(x, y), initial_scalars(x)
        step = curvature = None
        zero = scalars.distance
        if "alpha" in self.names:
            start = sketch(x)
            empty = jnp.zeros_like(start)
            tracked = jnp.append(empty, zero)
            step = StepMemory(scalars, start, start, tracked, tracked, empty)
        if self.level != "none":
            wave = lambda a: jnp.cos(1.7 * jnp.arange(a.size, dtype=a.dtype) + 0.3).reshape(a.shape)
            vector = unit_vector(jax.tree.map(wave, y))
            own = self.method.auxiliary(method)
            z = tree.zeros(y) if own is None and self.carries_z else None
            curvature = Curvature(vector, zero, zero + 1, zero, z, WorkMemory(*[zero] * 4))
        return _state(method, curvature, step)


class LearnedStage(NamedTuple):
    """One stage of the method, with its numbers filled in."""

    algorithm: LearnedNumbers
    number: int

    @property
    def stage(self) -> Any:
        return self.algorithm.method.stages[self.number]

    @property
    def times(self) -> int:
        return int(self.stage.times)

    @property
    def links(self) -> int:
        return int(self.stage.links)

    @property
    def early(self) -> bool:
        return bool(self.stage.early)

    def filled(self, curvature: Curvature | None, step: StepMemory | None) -> Any:
        """The stage of the method with numbers."""
        values = self.algorithm.values(curvature)
        if step is not None:
            values["alpha"] = step.scalars.alpha
        return with_numbers(self.algorithm.method, values).stages[self.number]

    def estimate(
        self, problem: Objectives, state: State, t: Number, sample: Sample
    ) -> tuple[Estimate, Cost]:
        method, curvature, step = state.method, state.curvature, state.step
        rows, spent = self.algorithm.method.curvature_sample(sample), Cost()
        if curvature is not None and self.stage.moves_x and self.algorithm.works_locally:
            method, curvature, spent = self._work(problem, method, curvature, t, sample)
        if curvature is not None and (self.stage.moves_x or self.number == 0):
            curvature, more = self._curvature(problem, method, curvature, t, rows)
            spent = tree.add(spent, more)
        stage = self.filled(curvature, step)
        found, cost = stage.estimate(problem, method, t, sample)
        if step is not None and self.stage.moves_x:
            direction = stage.x_direction(found, method)
            about = method, curvature, step, direction, stage.lower_gradient(found)
            curvature, step, more = self._step(problem, *about, t, rows)
            spent = tree.add(spent, more)
        return Estimate(found, method, curvature, step), tree.add(cost, spent)

    def _work(
        self, problem: Objectives, method: Any, curvature: Curvature, t: Number, sample: Sample
    ) -> tuple[Any, Curvature, Cost]:
        """Solve for y and z locally, where they lag."""
        own = self.algorithm.method.auxiliary(method)
        z = curvature.z if own is None else own
        lag = curvature.slowest / self.algorithm.lower_steps
        found = work_locally(problem, (method.x, method.y, z), curvature.work, lag, t, sample)
        method = self.algorithm.method.with_lower_level(method, found.y, found.z)
        kept = curvature._replace(work=found.memory, z=found.z if own is None else None)
        return method, kept, found.cost

    def _curvature(
        self, problem: Objectives, method: Any, known: Curvature, t: Number, sample: Sample
    ) -> tuple[Curvature, Cost]:
        """A step of power iteration, and a product along z; more of both in round 0."""
        own = self.algorithm.method.auxiliary(method)
        carries = own is None and self.algorithm.carries_z
        x, y, z = method.x, method.y, known.z if carries else own
        if z is None:
            z = tree.zeros(y)
        gradient = lambda y: jax.grad(problem.g, 1)(x, y, sample.lower)
        product = lambda q: jax.jvp(gradient, (y,), (q,))[1]
        first = jnp.asarray(t == 0)
        rows, upper = problem.train.size(sample.lower), problem.valid.size(sample.upper)
        along, size = unit_vector(z), tree.norm(z)
        times = jnp.where(first, POWER_STEPS_AT_START, 1 if self.stage.moves_x else 0)
        both = first | carries  # in turn, where the method has its own product along z
        powers, products = jnp.where(both | (t % 2 == 0), times, 0), both | (t % 2 == 1)
        if not self.algorithm.carries_z:
            powers, products = times, jnp.zeros_like(first)
        vector = unit_vector(tree.axpy(MIXED, along, known.power_vector))
        vector = jax.lax.fori_loop(0, powers, lambda _, q: product(unit_vector(q)), vector)
        vector = tree.select(powers > 0, vector, known.power_vector)
        nothing = tree.mapped_with(products & (times > 0), size)
        curved = run_if(nothing, lambda: product(along), tree.zeros(z))
        steepest = jnp.where(powers > 0, tree.norm(vector), 0.0)
        seen = jnp.maximum(steepest, tree.norm(curved))
        largest = jnp.maximum(FORGETTING * known.largest, seen)
        bend = jnp.abs(tree.dot(along, curved))
        lag = self._slowness(largest, bend)
        old = 0.9 if carries else 0.8
        lag = jnp.where(first, lag, old * known.lag + (1 - old) * lag)
        lag = jnp.where(products, jnp.where(size > 0, lag, 1.0), known.lag)
        cost = Cost(0, 0, rows * (powers + products * (times > 0)))
        kept = None
        if carries:
            f_y = jax.grad(problem.f, 1)(x, y, sample.upper)
            residual = tree.sub(tree.scale(size, curved), f_y)
            kept = tree.axpy(-1 / (MARGIN * largest + TINY), residual, z)
            cost = cost._replace(gradients=upper * (times > 0))
        rest = known.response_lag, kept, known.work
        found = Curvature(unit_vector(vector), largest, lag, *rest)
        return _cast(tree.select(times > 0, found, known), known), cost

    def _step(
        self,
        problem: Objectives,
        method: Any,
        curvature: Curvature | None,
        known: StepMemory,
        direction: Tree,
        lower_gradient: Tree | None,
        t: Number,
        sample: Sample,
    ) -> tuple[Curvature | None, StepMemory, Cost]:
        """The step size of x in this round."""
        begin, scalars, x = self.algorithm.first_move, known.scalars, method.x
        first, ramping = jnp.asarray(t <= begin), scalars.ramping > 0.5
        if curvature is None:
            gradient = lambda x: jax.grad(problem.f)(x, None, sample.upper)
            rows, value = problem.valid.size(sample.upper), gradient(x)
            reference = most = tree.norm(value)
            delay, unsettled = jnp.ones_like(reference), jnp.zeros_like(reference)
            again = jnp.ones_like(ramping)
        else:
            gradient = lambda x: jax.grad(problem.g, 1)(x, method.y, sample.lower)
            rows, work = problem.train.size(sample.lower), curvature.work
            value, again = lower_gradient, jnp.zeros_like(ramping)
            if value is None:
                needed, again = tree.mapped_with(ramping, scalars.alpha), ramping
                value = run_if(needed, lambda: gradient(x), tree.zeros(method.y))
            residual = tree.norm(value)
            larger = jnp.maximum(work.reference, residual)
            reference = jnp.where(t == 0, larger, work.reference)
            reference = sound_reference(reference, curvature.largest, method.y)
            work = work._replace(reference=reference, residual=residual)
            curvature = _cast(curvature._replace(work=work), curvature)
            most, delay = TRUST * reference, self._delay(curvature)
            unsettled = (residual > UNSETTLED * reference).astype(reference.dtype)
        about = x, known.start, direction, value, most, reference, scalars, first
        length, probes = trusted_length(gradient, *about)
        spent = Cost()
        if self.algorithm.works_locally and curvature is not None:
            point = x, method.y
            newton, bend, spent = newton_length(problem, *point, direction, first, sample)
            length = jnp.where(first, jnp.minimum(length, newton), length)
            slow = self._slowness(curvature.largest, bend)
            slow = jnp.where(first, slow, curvature.response_lag)
            curvature = _cast(curvature._replace(response_lag=slow), curvature)
        inputs, found = self._inputs(method, known, direction, length, t)
        step = propose_step(scalars, inputs)
        alpha = jnp.where(t < begin, 0.0, step.alpha)
        step = step._replace(alpha=alpha, unsettled=unsettled, delay=delay)
        cost = tree.add(spent, Cost(0, rows * (probes + again), 0, rows * first))
        return curvature, _cast(found._replace(scalars=step), known), cost

    def _slowness(self, largest: jax.Array, bend: jax.Array) -> jax.Array:
        """Rounds in which gradient steps relax along a direction of that curvature."""
        step = self.algorithm.share / (self.algorithm.lower_caution * MARGIN * largest + TINY)
        return 1 / (step * bend + TINY)

    def _delay(self, curvature: Curvature) -> jax.Array:
        """Rounds in which y follows x."""
        lag = curvature.slowest / self.algorithm.lower_steps
        if self.algorithm.level == "common":
            return 2 * lag + 1  # of y, then z; of the trackers
        return jnp.where((lag > LAGGING) & (curvature.work.rest <= 0), 1.0, lag)

    def _inputs(
        self, method: Any, known: StepMemory, direction: Tree, length: jax.Array, t: Number
    ) -> tuple[StepInputs, StepMemory]:
        """What the step is chosen from, in sketches; and what is kept of it."""
        first, weight = jnp.asarray(t <= self.algorithm.first_move), self._statistics_weight
        position = sketch(method.x)
        own = jnp.append(sketch(direction), tree.dot(direction, direction))
        change = own - known.direction
        tracked, told = known.tracked + change, self.stage.tracker(method)
        newest = tracked[:-1] if told is None else sketch(told) + change[:-1]
        squared = jnp.maximum(tracked[-1], own[-1])  # of the network, but never less than its own
        magnitude = jnp.sqrt(squared) if told is None else None
        smooth = known.tracker + weight * (newest - known.tracker)
        tracker = jnp.where(first, newest, smooth)
        inputs = StepInputs(
            position,
            known.start,
            known.average,
            tracker,
            known.tracker,
            length,
            t,
            first,
            self.algorithm.method.smoothing_delay(t) + 1 / weight - 1,
            magnitude,
            newest,
            boldness=1 / self.algorithm.caution,
        )
        average = known.average + RECENT * (position - known.average)
        return inputs, StepMemory(known.scalars, known.start, average, own, tracked, tracker)

    @property
    def _statistics_weight(self) -> float:
        return float(self.algorithm.method.statistics_weight)

    def outgoing(self, state: State, estimate: Estimate | None, t: Number) -> Message:
        if estimate is None or self.early:
            found, before, curvature, step = None, state.method, state.curvature, state.step
        else:
            found, before, curvature, step = estimate
        told = self.filled(curvature, step).outgoing(before, found, t)
        extra: dict[str, Any] = {}
        if self.stage.moves_x and step is not None:
            extra["step"] = step.scalars
            if self.stage.tracker(state.method) is None:
                extra["direction"] = step.tracked
        if self.stage.moves_x and self.algorithm.level == "common" and curvature is not None:
            extra["curvature"] = curvature.largest
        return Message({"method": told.average} | extra, told.total) if extra else told

    def update(
        self, state: State, estimate: Estimate, told: Message, change: Message, t: Number
    ) -> State:
        found, before, curvature, step = estimate
        stage = self.filled(curvature, step)
        if self.stage.moves_x and (step is not None or self.algorithm.level == "common"):
            changes = change.average
            if step is not None:
                tracked = step.tracked + changes.get("direction", 0.0)
                step = step._replace(
                    scalars=tree.add(step.scalars, changes["step"]), tracked=tracked
                )
            if self.algorithm.level == "common" and curvature is not None:
                largest = curvature.largest + changes["curvature"]
                curvature = curvature._replace(largest=largest)
            told, change = (Message(m.average["method"], m.total) for m in (told, change))
        method = stage.update(before, found, told, change, t)
        if curvature is not None and self.stage.moves_x and self.algorithm.works_locally:
            solved = curvature.work.solved & jnp.asarray(t > 0)
            kept = {
                n: getattr(before, n) for n in ("y", "z") if getattr(before, n, None) is not None
            }
            moved = {name: getattr(method, name) for name in kept}
            method = method._replace(**tree.select(solved, kept, moved))
        return _state(_cast(method, state.method), curvature, step)


def _cast(new: Tree, old: Tree) -> Tree:
    """`new` in the types of `old`: a round number is an integer, whose roots are in double."""
    return jax.tree.map(lambda new, old: jnp.asarray(new, old.dtype), new, old)


def with_learned_numbers(method: Any, problem: Problem, share: float) -> Any:
    """The method, or where it left numbers to be learned, the method that learns them.

    `share`: of 1 / (MARGIN L), the step of a y that moves as it does in this method.
    """
    if not learned_names(method):
        return method
    stable: Any = 1.0
    if problem.lower_level == "common":
        stable = Deferred("_share_of_beta", partial(_stable_share, share=share))
    monitored = problem.lower_level != "common" and "alpha" in learned_names(method)
    monitor: Any = loss_monitor if monitored else 0.0
    return LearnedNumbers(method, stable, monitor=monitor, level=problem.lower_level)


def _stable_share(setting: Setting, share: float) -> Found:
    """The share of 1 / (MARGIN L) that gradient tracking takes on this network."""
    if setting.network is None or share == 1.0:
        return Found(share, lasting=True)
    network = setting.network.damped(0, 25)
    stable = MARGIN * network.tracking["atc"] / 2
    return Found(min(share / network.pull, stable), lasting=True)
