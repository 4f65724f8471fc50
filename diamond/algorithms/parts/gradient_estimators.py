"""Estimators that turn sampled directions into the directions of the variables.

plain      d_t                                             on a fresh sample, or on all rows
average    r_t = (1 - theta_t) r_{t-1} + theta_t d_t
momentum   p_t = d(t) + (1 - eta_t) (p_{t-1} - d(t-1))     both on the sample of round t (6, 7)
optimistic p_t = 2 d_t - d_{t-1}                           each on the sample of its round
recursive  p_t = p_{t-1} + d(t) - d(t-1), and every q rounds d(t) on all rows
snapshot   d(t) on all rows with a given probability, else the last one
saga       p_t = d(b) - table(b) + mean of the table, b the block of rows drawn

In round 0 the weights theta and eta are 1: every estimator begins with a direction.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import gcd
from typing import Any, ClassVar, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from ...core import pytrees
from ...core.cost_counter import Cost
from ...core.exclusions import check_combination
from ...core.host_transfer import default_dtype
from ...core.pytrees import Number, Tree
from ...core.sampling import Sample, is_stream
from ...core.suggestions import did_you_mean
from ...core.validation import as_int
from ...problem import Problem
from ...schedules.deferred import Deferred, Measurement, ResolutionContext, ResolvedValue
from ...schedules.step_schedules import Schedule, schedule, weight
from .variables import STATIC, Point, merge_points

EstimatorResult = tuple[Point, Any, Cost]  # directions, state of the estimator, cost


class RowCounts(NamedTuple):
    """Numbers of rows of one agent."""

    batch: int
    valid: Any
    train: Any


class SampledDirections(Protocol):
    """Directions of some variables of one agent in round t."""

    @property
    def names(self) -> str:
        """Names of the variables."""

    @property
    def rows(self) -> RowCounts:
        """Numbers of rows of the agent."""

    def __call__(self, points: Sequence[Point], sample: Sample) -> tuple[list[Point], Cost]:
        """Return the directions at each point, on ONE sample."""

    def upper_and_lower_parts(self, point: Point, sample: Sample) -> tuple[Point, Point, Cost]:
        """Return the parts of f and g, on xi and zeta alone; their sum is the direction."""


class EstimatorInputs(NamedTuple):
    """Inputs of an estimator."""

    point: Point
    previous_point: Any  # point of the previous round, if the estimator needs it
    previous_directions: (
        Point  # previous directions of the variables in `previous_direction_variables`
    )
    memory: Any  # state of the estimator
    t: Number
    sample: Sample


class Estimator:
    """Function of sampled directions; what it does not say, it does not need."""

    is_private: ClassVar[bool] = False  # directions are clipped, and have noise
    needs_split_levels: ClassVar[bool] = False  # needs directions as parts of f and of g

    @property
    def full(self) -> bool:
        """Whether it takes all rows in every round."""
        return False

    @property
    def is_noisy(self) -> bool:
        """Whether it returns the directions on a single mini-batch."""
        return False

    @property
    def keeps_lower_gradient(self) -> bool:
        """Whether its direction of y is g_y on the sample of this round."""
        return False

    @property
    def needs_previous_point(self) -> bool:
        """Whether it needs the point of the previous round."""
        return False

    @property
    def previous_direction_variables(self) -> str:
        """Variables whose previous direction it needs."""
        return ""

    def specialize(self, method: Any, problem: Problem) -> Any:
        """Return the method with this estimator specialized for the problem."""
        return method

    def check_member_changes(self) -> None:
        """Raise if the state has no meaning after members change."""

    def delay(self, t: Number) -> Number:
        """Return the number of rounds by which its directions lag."""
        return 0.0

    def schedule_values(self, t: Number) -> dict[str, Number]:
        """Return the weights of round t."""
        return {}

    def init(self, point: Point) -> Any:
        """Return the state before round 0."""
        return None

    def __call__(self, directions: SampledDirections, inputs: EstimatorInputs) -> EstimatorResult:
        raise NotImplementedError


@pytrees.pytree
@dataclass(frozen=True)
class Plain(Estimator):
    """Directions on a fresh sample, or on all rows."""

    full: bool = field(default=False, metadata=STATIC)
    keeps_lower_gradient = True

    @property
    def is_noisy(self) -> bool:
        return not self.full

    def __call__(self, directions: SampledDirections, inputs: EstimatorInputs) -> EstimatorResult:
        (new,), cost = directions(
            [inputs.point], inputs.sample.full() if self.full else inputs.sample
        )
        return new, None, cost


@pytrees.pytree
@dataclass(frozen=True)
class Average(Estimator):
    """Moving average r_t = (1 - theta_t) r_{t-1} + theta_t d_t of x; with gamma also of y, z."""

    theta: Schedule
    gamma: Schedule | None = None

    @property
    def keeps_lower_gradient(self) -> bool:
        return self.gamma is None

    def delay(self, t: Number) -> Number:
        return 1 / weight(self.theta, t) - 1

    @property
    def previous_direction_variables(self) -> str:
        return "x" if self.gamma is None else "xyz"

    def schedule_values(self, t: Number) -> dict[str, Number]:
        weights = {"theta": weight(self.theta, t)}
        return weights if self.gamma is None else weights | {"gamma": weight(self.gamma, t)}

    def __call__(self, directions: SampledDirections, inputs: EstimatorInputs) -> EstimatorResult:
        (new,), cost = directions([inputs.point], inputs.sample)
        theta = weight(self.theta, inputs.t)
        gamma = theta if self.gamma is None else weight(self.gamma, inputs.t)
        names = "".join(n for n in self.previous_direction_variables if getattr(new, n) is not None)
        old = inputs.previous_directions.only(names)
        mean = lambda w, o, n: n if o is None else pytrees.axpy(1 - w, pytrees.sub(o, n), n)
        return Point(*map(mean, (theta, gamma, gamma), old, new)), None, cost


@pytrees.pytree
@dataclass(frozen=True)
class Momentum(Estimator):
    """Momentum p_t = h(t) + (1 - eta_t) (p_{t-1} - h(t-1)), on one sample (6); v_t (7).

    Without gamma only x has momentum; y and z then move in other stages than x, on one point.
    """

    eta: Schedule
    gamma: Schedule | None
    needs_previous_point = True

    @property
    def previous_direction_variables(self) -> str:
        return "x" if self.gamma is None else "xyz"

    def schedule_values(self, t: Number) -> dict[str, Number]:
        weights = {"eta": weight(self.eta, t)}
        return weights if self.gamma is None else weights | {"gamma": weight(self.gamma, t)}

    def __call__(self, directions: SampledDirections, inputs: EstimatorInputs) -> EstimatorResult:
        if self.gamma is None and directions.names != "x":
            return Plain()(directions, inputs)
        (new, previous), cost = directions([inputs.point, inputs.previous_point], inputs.sample)
        eta = weight(self.eta, inputs.t)
        gamma = eta if self.gamma is None else weight(self.gamma, inputs.t)

        def with_momentum(weight: Number, old: Tree, new: Tree, previous: Tree) -> Tree:
            return (
                None if new is None else pytrees.axpy(1 - weight, pytrees.sub(old, previous), new)
            )

        return (
            Point(
                *map(with_momentum, (eta, gamma, gamma), inputs.previous_directions, new, previous)
            ),
            None,
            cost,
        )


@pytrees.pytree
@dataclass(frozen=True)
class Optimistic(Estimator):
    """Extrapolation 2 d_t - d_{t-1} of the directions by their last change; in round 0, d_0."""

    def init(self, point: Point) -> Point:
        return pytrees.zeros(point)

    def __call__(self, directions: SampledDirections, inputs: EstimatorInputs) -> EstimatorResult:
        (new,), cost = directions([inputs.point], inputs.sample)
        ahead = pytrees.sub(new, inputs.memory.only(directions.names))
        estimate = jax.tree.map(lambda d, a: d + jnp.where(inputs.t > 0, a, 0), new, ahead)
        return estimate, merge_points(inputs.memory, new), cost


@pytrees.pytree
@dataclass(frozen=True)
class Recursive(Estimator):
    """Recursive estimator (SPIDER, SARAH) with all rows every `period` rounds.

    In between p_t = p_{t-1} + h(t) - h(t-1), likewise v_t. All agents are reset in the same rounds.
    """

    period: Any
    needs_previous_point = True
    previous_direction_variables = "xyz"

    def schedule_values(self, t: Number) -> dict[str, Number]:
        return {"period": self.period}

    def __call__(self, directions: SampledDirections, inputs: EstimatorInputs) -> EstimatorResult:
        def reset() -> tuple[Point, Cost]:
            (new,), cost = directions([inputs.point], inputs.sample.full())
            return new, _counted(cost)

        def recur() -> tuple[Point, Cost]:
            (new, back), cost = directions([inputs.point, inputs.previous_point], inputs.sample)
            names = "".join(n for n in "xyz" if getattr(new, n) is not None)
            old = inputs.previous_directions.only(names)
            return pytrees.add(old, pytrees.sub(new, back)), _counted(cost)

        estimate, cost = jax.lax.cond(inputs.t % self.period == 0, reset, recur)
        return estimate, None, cost


def _counted(cost: Cost) -> Cost:
    """Return the cost with numbers of one type, as a condition needs them."""
    return Cost(*(jnp.asarray(c).astype(jnp.uint32) for c in cost))


@pytrees.pytree
@dataclass(frozen=True)
class SnapshotGradients(Estimator):
    """Directions on all rows with a `probability`, in other rounds those of the last such round.

    All agents draw alike, without communication, so that these rounds cost nothing to anyone.
    """

    probability: Number
    full = True
    previous_direction_variables = "xyz"

    def delay(self, t: Number) -> Number:
        return 1 / self.probability - 1

    def schedule_values(self, t: Number) -> dict[str, Number]:
        return {"probability": self.probability}

    def __call__(self, directions: SampledDirections, inputs: EstimatorInputs) -> EstimatorResult:
        def renew() -> tuple[Point, Cost]:
            (new,), cost = directions([inputs.point], inputs.sample.full())
            return new, _counted(cost)

        old = inputs.previous_directions.only(directions.names), _counted(Cost())
        drawn = jnp.asarray(inputs.sample.bits).astype(jnp.float32) < self.probability * 2.0**32
        new, cost = jax.lax.cond(drawn | (inputs.t == 0), renew, lambda: old)
        return new, None, cost


class BlockTable(NamedTuple):
    """Last value computed on every block of rows, and the mean over all rows."""

    f: Point  # (blocks, ...): of validation rows
    g: Point  # of training rows
    mean: Point  # of both together


@pytrees.pytree
@dataclass(frozen=True)
class Saga(Estimator):
    """Estimator d(b) - table(b) + mean of the table, b the drawn block; then table(b) = d(b).

    The part of f uses blocks of validation rows, the part of g blocks of training rows. The blocks
    are fixed, so batches must divide the rows.
    """

    blocks: Any = field(default=None, metadata=STATIC)  # number of blocks of the largest agent
    needs_split_levels = True

    def check_member_changes(self) -> None:
        check_combination({"changing members": True, "a table of rows": True}, "saga")

    def init(self, point: Point) -> BlockTable:
        rows = jax.tree.map(lambda a: jnp.zeros((self.blocks, *a.shape), a.dtype), point)
        return BlockTable(rows, rows, pytrees.zeros(point))

    def __call__(self, directions: SampledDirections, inputs: EstimatorInputs) -> EstimatorResult:
        sample = inputs.sample
        is_drawn = is_stream(sample.upper) or is_stream(sample.lower)
        check_combination({"a table of rows": True, "streams": is_drawn}, "saga")
        if jnp.ndim(sample.upper):
            raise ValueError("a table of blocks needs sampling='blocks': single rows have no block")
        rows = directions.rows
        f, g = sample.upper // rows.batch, sample.lower // rows.batch
        upper, lower, cost = directions.upper_and_lower_parts(
            inputs.point, Sample(f * rows.batch, g * rows.batch, g * rows.batch, None, sample.bits)
        )
        table = BlockTable(*(part.only(directions.names) for part in inputs.memory))
        entry = lambda part, b: jax.tree.map(lambda a: a[b], part)
        f_error, g_error = (
            pytrees.sub(upper, entry(table.f, f)),
            pytrees.sub(lower, entry(table.g, g)),
        )
        estimate = pytrees.add(table.mean, pytrees.add(f_error, g_error))
        mean = pytrees.axpy(rows.batch / rows.valid, f_error, table.mean)
        mean = pytrees.axpy(rows.batch / rows.train, g_error, mean)
        write = lambda part, b, new: jax.tree.map(lambda a, n: a.at[b].set(n), part, new)
        new = BlockTable(write(table.f, f, upper), write(table.g, g, lower), mean)
        return estimate, BlockTable(*map(merge_points, inputs.memory, new)), cost


def _count_blocks(context: ResolutionContext) -> ResolvedValue:
    """Return the number of blocks of the largest agent; reject rows that batches do not divide."""

    def measure() -> Measurement:
        counts = [context.problem.counts(part) for part in ("valid", "train")]
        for name, row_counts in zip(("validation", "training"), counts):
            for agent, count in zip(np.asarray(context.agent_indices), row_counts):
                if count % context.batch:
                    divisor = gcd(*map(int, np.concatenate(counts)))
                    batch = max(k for k in range(1, context.batch + 1) if divisor % k == 0)
                    raise ValueError(
                        f"agent {agent} has {count} {name} rows, which batches of {context.batch} "
                        f"do not divide: a table of blocks needs that; take batch={batch}"
                    )
        blocks = np.max(counts, axis=0) // context.batch
        return blocks.astype(default_dtype())[:, None], Cost()

    (blocks,), cost = context.consensus.maximum("blocks", measure)
    return ResolvedValue(int(blocks), cost, agreed=1, talks=1, lasting=True)


def plain(full: bool = False) -> Plain:
    """Make the estimator on a fresh mini-batch, or on all rows if `full`."""
    return Plain(full)


def average(theta: Schedule | Number, gamma: Schedule | Number | None = None) -> Average:
    """Make a moving average of the direction of x and, with `gamma`, of those of y and z."""
    return Average(schedule(theta, "theta"), None if gamma is None else schedule(gamma, "gamma"))


def momentum(eta: Schedule | Number, gamma: Schedule | Number | None = None) -> Momentum:
    """Make STORM momentum, eqs. (6) and (7): `eta` for x, `gamma` (default eta) for y and z."""
    return Momentum(schedule(eta, "eta"), schedule(eta if gamma is None else gamma, "gamma"))


def recursive(period: int | None = None) -> Recursive:
    """Make SPIDER with a full gradient every `period` rounds, by default the root of the rows."""
    if period is not None and as_int("period", period) < 1:
        raise ValueError(
            f"period = {period}: the number of rounds between full gradients is 1 or more"
        )
    return Recursive(Deferred("period", _root_of_rows) if period is None else period)


def snapshot(probability: Number = 0.5) -> SnapshotGradients:
    """Make an estimator that keeps the directions of a round for 1 / `probability` rounds."""
    if isinstance(probability, int | float) and not 0 < probability <= 1:
        raise ValueError(
            f"probability = {probability}: the share of rounds with new directions lies above 0, "
            f"at most at 1"
        )
    return SnapshotGradients(probability)


def saga() -> Saga:
    """Make SAGA, with a table entry for every block of rows."""
    return Saga(Deferred("blocks", _count_blocks))


def _root_of_rows(context: ResolutionContext) -> ResolvedValue:
    def measure() -> Measurement:
        roots = np.ceil(np.sqrt(context.problem.full_counts("train")))
        return roots.astype(default_dtype())[:, None], Cost()

    (period,), cost = context.consensus.maximum("period", measure)
    return ResolvedValue(int(period), cost, agreed=1, talks=1, lasting=True)


def estimator_by_name(name: str, weights: Mapping[str, Schedule], period: int | None) -> Estimator:
    """Return an estimator by name, with its weights."""
    makers: dict[str, Callable[[], Estimator]] = {
        "plain": plain,
        "full": lambda: plain(full=True),
        "average": lambda: Average(weights["theta"], weights.get("gamma")),
        "momentum": lambda: Momentum(weights["eta"], weights.get("gamma", weights["eta"])),
        "optimistic": Optimistic,
        "recursive": lambda: recursive(period),
        "saga": saga,
    }
    if name not in makers:
        raise ValueError(f"no estimator {name!r}; {did_you_mean(name, makers)}")
    return makers[name]()
