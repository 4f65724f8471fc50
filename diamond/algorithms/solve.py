"""The method behind `diamond.solve`: it learns its step sizes while it runs.

Rule: of this project, described in docs/solve.md.
"""

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from ..auto.local_solver import run_if, solve_locally
from ..auto.step_rule import (
    FIRST,
    GROWTH,
    RECENT,
    TINY,
    TRUST,
    StepInputs,
    StepScalars,
    initial_scalars,
    propose_step,
)
from ..core import tree
from ..core.cost import Cost
from ..core.sampling import Sample
from ..core.tree import Tree
from ..core.whole_numbers import whole
from ..numbers.open_numbers import Deferred, Found, Setting
from ..numbers.schedule import Number
from ..problem import Objectives, Problem
from ..rounds.algorithm import Message
from .parts.point import STATIC, Point

__all__ = ["solve"]

MARGIN = 1.5  # between 1 / curvature and the steps of y and z
COMMON_SHARE = 1 / 3  # of 1 / curvature: the steps of a y and z that are tracked
WARM_UP = 4  # rounds before x moves, where y and z cannot be solved for locally
POWER_STEPS_AT_START = 4
FORGETTING = 0.99  # of the largest curvature seen, a round
SMOOTHING, LEAST_WEIGHT = 10.0, 0.3  # of the moving average of the direction of x
LAGGING = 10.0  # rounds in which z relaxes, from which on local work is tried
USELESS, USEFUL = 0.8, 0.5  # similarity of the hypergradient before and after local work
LONGEST_REST = 63.0  # rounds between two local solutions
UNSETTLED, EXPLODED = 2.0, 10.0  # times its norm at the start: a lower gradient that stops the
# growth of steps, and that asks for local work
BATCHES_AT_START, BATCHES = 8, 64  # mini-batches that local work uses, at most
MOST_PROBES = 30  # of a step that shifts the lower gradient too far
BUDGET = 30.0  # local work, of the gradient work of the rounds that it is done for, at most


class Memory(NamedTuple):
    """What an agent keeps for itself."""

    power_vector: Tree  # about the eigenvector of g_yy to its largest eigenvalue
    curvature: jax.Array  # the largest eigenvalue of g_yy
    lag: jax.Array  # rounds in which gradient steps of z relax, along z
    reference: jax.Array  # ||g_y|| at the start
    residual: jax.Array  # ||g_y|| on the last mini-batch
    rest: jax.Array  # rounds to the next local solution,
    wait: jax.Array  # and how many of them are left
    upper_loss: jax.Array  # f on the last mini-batch, at the agent's own y


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


class Estimate(NamedTuple):
    """The gradient work of a round."""

    direction: Point
    y: Tree
    z: Tree
    trusted_length: jax.Array
    memory: Memory


@tree.pytree
@dataclass(frozen=True)
class Adaptive:
    """One exchange a round; every number is learned."""

    boldness: Any = 1.0  # scales all steps of x; smaller after a rollback
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
    def stages(self) -> tuple["Adaptive", ...]:
        return (self,)

    def suited(self, problem: Problem) -> "Adaptive":
        """The method for this kind of lower level."""
        return replace(self, level=problem.lower_level, prox=problem.prox)

    def shrunk(self, factor: Number) -> "Adaptive":
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
        power_vector = _unit(jax.tree.map(wave, y))
        memory = Memory(power_vector, *[zero] * 7)
        point = tree.zeros(Point(x, y, y) if self.level == "common" else Point(x))
        return State(x, y, tree.zeros(y), point, point, point.x, x, x, scalars, memory)

    def estimate(
        self, problem: Objectives, state: State, t: Number, sample: Sample
    ) -> tuple[Estimate, Cost]:
        """Sampled directions, and local work where y lags behind x."""
        if self.level == "none":
            return self._without_lower_level(problem, state, t, sample)
        memory, x = state.memory, state.x
        y, z, spent = state.y, state.z, Cost(*(0 * memory.rest.astype(jnp.int32) for _ in range(4)))
        if self.level == "personal":
            y, z, memory, spent = self._work_locally(problem, state, t, sample)
        f, (f_x, f_y) = jax.value_and_grad(problem.f, (0, 1))(x, y, sample.upper)
        lower_gradient = lambda x, y: jax.grad(problem.g, 1)(x, y, sample.cross)
        v, transposed = jax.vjp(lower_gradient, x, y)
        cross, product = transposed(z)
        w = tree.sub(product, f_y)
        p = self._averaged(state, tree.sub(f_x, cross), t)

        power_vector, powers = self._power_steps(lower_gradient, x, y, memory, v, t)
        along_z = tree.norm(z) + TINY
        seen = jnp.maximum(tree.norm(power_vector), tree.norm(product) / along_z)
        curvature = jnp.maximum(FORGETTING * memory.curvature, seen)
        bend = jnp.abs(tree.dot(z, product)) / along_z**2
        lag = jnp.where(tree.norm(z) > 0, MARGIN * curvature / (bend + TINY), 1.0)
        lag = jnp.where(t == 0, lag, 0.9 * memory.lag + 0.1 * lag)
        residual = tree.norm(v)
        reference = jnp.where(t == 0, jnp.maximum(memory.reference, residual), memory.reference)
        reference = _sound_reference(reference, curvature, y)
        memory = memory._replace(
            power_vector=_unit(power_vector),
            curvature=curvature,
            lag=lag,
            reference=reference,
            residual=residual,
            upper_loss=f,
        )
        ramping = state.step.ramping > 0.5
        moves_first = jnp.asarray(t <= self._begin)
        along = _unit(p)
        slope = lambda: tree.norm(jax.jvp(lambda x: lower_gradient(x, y), (x,), (along,))[1])
        change = run_if(tree.mapped_with(moves_first, residual), slope, jnp.zeros_like(residual))
        far = _finite_or(FIRST * reference / (change + TINY), 1 + tree.norm(state.start))
        longest = jnp.where(moves_first, far, GROWTH * state.step.length)
        shift = lambda s: tree.norm(tree.sub(lower_gradient(tree.axpy(-s, along, x), y), v))
        length, probes = _backtrack(shift, longest, TRUST * reference, ramping)
        direction = Point(p)
        if self.level == "common":
            direction = Point(p, v, w)
        else:
            step, solved = self._lower_step(curvature), memory.wait == memory.rest
            y = tree.select(solved, y, tree.axpy(-step, v, y))
            z = tree.select(solved, z, tree.axpy(-step, w, z))

        upper, rows = problem.valid.size(sample.upper), problem.train.size(sample.cross)
        gradients = upper + rows * (1 + probes)
        cost = Cost(upper + rows, gradients, (1 + powers) * rows, rows * (1 + moves_first))
        return Estimate(direction, y, z, length, memory), tree.add(cost, spent)

    def _work_locally(self, problem: Objectives, state: State, t: Number, sample: Sample) -> Any:
        """y and z solved for where they lag, the memory after that, and the cost.

        Local work has paid off where it changes the hypergradient, on the same rows. Where it did
        not, the agent rests for twice as many rounds before it tries again.
        """
        memory, x = state.memory, state.x

        def hypergradient(y: Tree, z: Tree) -> Tree:
            f_x = jax.grad(problem.f, 0)(x, y, sample.upper)
            g_y = lambda x: jax.grad(problem.g, 1)(x, y, sample.cross)
            return tree.sub(f_x, jax.vjp(g_y, x)[1](z)[0])

        def work(batches: int, at_start: bool) -> Any:
            found = solve_locally(problem, x, state.y, state.z, sample, batches, at_start)
            if at_start:
                kept = memory._replace(reference=found.reference)
                return found.y, found.z, kept, found.cost
            before, after = hypergradient(state.y, state.z), hypergradient(found.y, found.z)
            larger = jnp.maximum(tree.dot(before, before), tree.dot(after, after))
            similarity = tree.dot(before, after) / (larger + TINY)
            longer = jnp.minimum(2 * memory.rest + 1, LONGEST_REST)
            rest = jnp.where(similarity < USEFUL, 0.0, memory.rest)
            rest = jnp.where(similarity > USELESS, longer, rest)
            upper, batch = problem.valid.size(sample.upper), problem.train.size(sample.cross)
            rounds = (found.cost.gradients + found.cost.hvps) // (BUDGET * (upper + 3 * batch))
            rest = jnp.maximum(rest, rounds.astype(rest.dtype))
            kept = memory._replace(rest=rest, wait=rest)
            return found.y, found.z, kept, tree.add(found.cost, Cost(0, upper, 0, batch))

        zero = 0 * memory.rest.astype(jnp.int32)
        nothing = state.y, state.z, memory._replace(wait=memory.wait - 1), Cost(*[zero] * 4)
        lagging = (memory.lag > LAGGING) & (memory.wait <= 0)
        needed = lagging | (memory.residual > EXPLODED * memory.reference)
        started = tree.mapped_with(jnp.asarray(t == 0), memory.rest)
        first = run_if(started, lambda: work(BATCHES_AT_START, True), nothing)
        return run_if(needed & ~started, lambda: work(BATCHES, False), first)

    def _power_steps(
        self, lower_gradient: Any, x: Tree, y: Tree, memory: Memory, v: Tree, t: Number
    ) -> tuple[Tree, Any]:
        """g_yy times a unit vector that turns to its steepest direction; how many products.

        The residual v is mixed in: where y becomes unstable, it grows along the new direction.
        """
        times = jnp.where(t == 0, POWER_STEPS_AT_START, 1)
        first = _unit(tree.axpy(0.5, _unit(v), memory.power_vector))
        product = lambda q: jax.jvp(lambda y: lower_gradient(x, y), (y,), (q,))[1]
        return jax.lax.fori_loop(0, times, lambda _, q: product(_unit(q)), first), times

    def _averaged(self, state: State, new: Tree, t: Number) -> Tree:
        """The moving average of the direction of x."""
        weight = jnp.where(t == 0, 1.0, _weight(t))
        return tree.axpy(weight, tree.sub(new, state.direction.x), state.direction.x)

    def _without_lower_level(
        self, problem: Objectives, state: State, t: Number, sample: Sample
    ) -> tuple[Estimate, Cost]:
        """The gradient of f, and the length of Newton's step along it."""
        gradient = jax.grad(problem.f, 0)
        f, new = jax.value_and_grad(problem.f)(state.x, None, sample.upper)
        p = self._averaged(state, new, t)
        along, size = _unit(p), tree.norm(p)
        f_x = lambda x: gradient(x, None, sample.upper)
        ramping, moves_first = state.step.ramping > 0.5, jnp.asarray(t == 0)
        slope = lambda: tree.norm(jax.jvp(f_x, (state.x,), (along,))[1])
        change = run_if(tree.mapped_with(moves_first, size), slope, jnp.zeros_like(size))
        far = _finite_or(FIRST * size / (change + TINY), 1 + tree.norm(state.start))
        longest = jnp.where(moves_first, far, GROWTH * state.step.length)
        shift = lambda s: tree.norm(tree.sub(f_x(tree.axpy(-s, along, state.x)), new))
        length, probes = _backtrack(shift, longest, size, ramping)
        memory = state.memory._replace(upper_loss=f)
        rows = problem.valid.size(sample.upper)
        cost = Cost(rows, rows * (1 + probes), rows * moves_first)
        return Estimate(Point(p), None, None, length, memory), cost

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
            1 / _weight(t) - 1,
        )
        step = propose_step(state.step, inputs)
        step = step._replace(unsettled=unsettled.astype(delay.dtype), delay=delay)
        moves = jnp.where(t < begin, 0.0, self.boldness)
        step = step._replace(alpha=moves * step.alpha, length=moves * step.length)
        return tracker, _cast(step, state.step)

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


def _unit(a: Tree) -> Tree:
    return tree.scale(1 / (tree.norm(a) + TINY), a)


def _weight(t: Number) -> jax.Array:
    return jnp.maximum((1 + t / SMOOTHING) ** (-2 / 3), LEAST_WEIGHT)


def _backtrack(shift: Any, length: jax.Array, most: jax.Array, needed: jax.Array) -> Any:
    """The length divided by 4 until a gradient shifts by no more than `most`; how many probes."""

    def too_far(carry: Any) -> jax.Array:
        _, shifted, probes = carry
        return needed & (probes < MOST_PROBES) & ~(shifted <= most)

    def probe(carry: Any) -> Any:
        length, _, probes = carry
        length = jnp.where(probes == 0, length, length / 4)
        return length, shift(length), probes + 1

    begin = length, jnp.full_like(length, jnp.inf), 0 * length.astype(jnp.int32)
    length, _, probes = jax.lax.while_loop(too_far, probe, begin)
    return length, probes


def _finite_or(length: jax.Array, otherwise: jax.Array) -> jax.Array:
    """`length`, unless x does not enter the gradient at all."""
    return jnp.where((length > 0) & (length < 1e20), length, otherwise)


def _sound_reference(reference: jax.Array, curvature: jax.Array, y: Tree) -> jax.Array:
    """||g_y|| at the start; where y started at its solution, that of a y that is a tenth off."""
    size = tree.norm(y)
    rounding = 1e-6 * curvature * size
    off = 0.1 * curvature * jnp.where(size > 0, size, 1.0)
    return jnp.where(reference > rounding, reference, off)


def _stable_share(setting: Setting) -> Found:
    """The share of 1 / curvature that gradient tracking takes on this network."""
    if setting.network is None or setting.problem.lower_level != "common":
        return Found(COMMON_SHARE, lasting=True)
    return Found(min(COMMON_SHARE, setting.network.tracking["atc"] / 2), lasting=True)


def solve(batch: int = 64) -> Adaptive:
    """Gradient tracking of x with learned step sizes; y and z by the work they need.

        p_t = average of f_x(x, y; xi) - g_xy(x, y; zeta) z      y <- y - beta g_y,  z <- z - beta w
        u_t = sum_j M_ij u_{j,t-1} + p_t - p_{t-1}               w = g_yy z - f_y
        x_{t+1} = sum_j M_ij (x_j - alpha_j u_j)

    alpha is learned from the trackers (`diamond.auto.step_rule`), beta = 1 / (1.5 L) from L by one
    product a round with a carried vector. Where z relaxes slowly, the agent solves for its y and z
    by a few conjugate gradients in rounds in which that changes the hypergradient. A y that is
    common to all agents is tracked like x. Nothing is measured before the first round.
    """
    return Adaptive(share=Deferred("share", _stable_share), batch=whole("batch", batch, 1))
