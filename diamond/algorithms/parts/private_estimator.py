"""Private directions: clipped and noised before an estimator, a tracker or a neighbour sees them.

With d(r) the direction on one row r, and n Gaussian of standard deviation s,

    by row   1/b sum_{r in S} clip(d(r)) + n,   s = m c sqrt(k) / b,  S a Poisson sample, b = E|S|
    whole    clip(d) + n,                       s = m 2 c sqrt(k),    d on any sample

with c the clip, m the noise multiplier and k the number of variables released together. By row, all
of x, y and z are released, so that later directions are functions of releases and of fresh rows.
Whole, only variables that are sent are released; y and z may depend on all rows, since ||clip(d)||
is at most c whatever the rows are. By row, the number of rows is public, and data sets are adjacent
if a row of one is nothing in the other: its direction is 0. Momentum releases d(t) - (1 - eta)
d(t-1) as one direction.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ...core import pytrees, threefry
from ...core.cost_counter import Cost
from ...core.pytrees import Number, Tree
from ...core.sampling import Sample
from ...privacy.accountant import padded_size
from ...privacy.private_runs import simulated_words
from ...problem import Problem
from ...schedules.deferred import PerAgent
from ...schedules.step_schedules import weight
from .directions import BoundDirections
from .gradient_estimators import (
    Estimator,
    EstimatorInputs,
    EstimatorResult,
    Momentum,
    RowCounts,
    SampledDirections,
)
from .privacy_plan import PrivacyBudget, PrivacyPlan, plan_privacy
from .variables import STATIC, Point

CHUNK = 64  # rows whose gradients are computed at once
UPPER_ROWS, LOWER_ROWS, NOISE = 1, 2, 3  # random purposes of a release


@pytrees.pytree
@dataclass(frozen=True)
class PrivateEstimator(Estimator):
    """An estimator that sees clipped and noised directions only."""

    inner: Estimator
    clip: Point  # of x, y and z
    budget: PrivacyBudget | None = field(metadata=STATIC)  # None once the noise is calibrated
    secret: Any = None  # four words of 32 bits; None: those of a simulation
    # For one problem, by `specialize`:
    multiplier: Any = None
    limit: Any = None  # rounds within the budget
    by_row: bool = field(default=False, metadata=STATIC)
    released: str = field(default="", metadata=STATIC)  # variables that are released
    size: int = field(default=0, metadata=STATIC)  # of a padded sample; 0: all rows
    is_private = True

    def plan(self, method: Any, problem: Problem) -> PrivacyPlan:
        """Return the mechanism of every agent, and the rounds within the budget."""
        return plan_privacy(method, problem)

    def specialize(self, method: Any, problem: Problem) -> Any:
        """Return the private method with the noise and the sample size for this problem."""
        if self.budget is None:
            return method
        plan, size = self.plan(method, problem), 0
        if plan.by_row and not self.full:
            budget = self.budget
            per_round = max(r.per_round for m in plan.mechanisms for r in m.releases)
            most_rounds = max(plan.limits) if budget.rounds is None else budget.rounds
            size = padded_size(method.batch, budget.epsilon, budget.delta, per_round * most_rounds)
        multipliers = np.array([m.multiplier for m in plan.mechanisms], np.float32)
        words = np.stack([simulated_words(agent) for agent in range(problem.agents)])
        by_agent = lambda values: values[0] if problem.agents == 1 else PerAgent(values)
        estimator = replace(
            self,
            budget=None,
            secret=by_agent(words) if self.secret is None else self.secret,
            multiplier=by_agent(multipliers),
            limit=by_agent(np.array(plan.limits, np.int32)),
            by_row=plan.by_row,
            released=plan.released,
            size=size,
        )
        return replace(method, estimator=estimator)

    @property
    def needs_previous_point(self) -> bool:
        return self.inner.needs_previous_point

    @property
    def previous_direction_variables(self) -> str:
        return self.inner.previous_direction_variables

    @property
    def full(self) -> bool:
        return self.inner.full

    def schedule_values(self, t: Number) -> dict[str, Number]:
        return self.inner.schedule_values(t)

    def init(self, point: Point) -> jax.Array:
        """Return the number of releases so far, which makes the noise of each of them new."""
        return jnp.zeros((), jnp.int32)

    def __call__(self, directions: SampledDirections, inputs: EstimatorInputs) -> EstimatorResult:
        assert isinstance(directions, BoundDirections)  # of a method, never private twice
        key = release_key(self.secret, inputs.memory, inputs.sample.bits)
        within = jnp.asarray(inputs.t < self.limit)
        release = PrivateDirections(self, directions, self._weights(inputs), key, within)
        estimate, _, cost = self.inner(release, inputs)
        return estimate, inputs.memory + 1, cost

    def _weights(self, inputs: EstimatorInputs) -> list[Point]:
        """Return the weight of the direction at each point, by variable."""
        if not isinstance(self.inner, Momentum):
            return [Point(1.0, 1.0, 1.0)]
        lower = self.inner.gamma or self.inner.eta  # without gamma y and z have one point
        eta, gamma = (weight(part, inputs.t) for part in (self.inner.eta, lower))
        return [Point(1.0, 1.0, 1.0), Point(eta - 1, gamma - 1, gamma - 1)]


def release_key(secret: jax.Array, number: jax.Array, bits: jax.Array) -> threefry.Words:
    """Return the key of a release: a function of the secret, its number and the public bits."""
    first = threefry.fold_in((secret[0], secret[1]), number)
    second = threefry.fold_in((secret[2], secret[3]), bits)
    return first[0] ^ second[0], first[1] ^ second[1]


class PrivateDirections(NamedTuple):
    """Directions that an estimator may combine as it likes: they are released."""

    estimator: PrivateEstimator
    directions: BoundDirections
    weights: list[Point]
    key: threefry.Words
    within: jax.Array  # whether the budget has this round

    @property
    def names(self) -> str:
        return self.directions.names

    @property
    def rows(self) -> RowCounts:
        return self.directions.rows

    def upper_and_lower_parts(self, point: Point, sample: Sample) -> tuple[Point, Point, Cost]:
        raise NotImplementedError  # sums of parts would reveal rows: no private estimator asks

    def __call__(self, points: Sequence[Point], sample: Sample) -> tuple[list[Point], Cost]:
        """Return the weighted sum of the directions, released, and zeros for other points."""
        values, cost = self.directions(points, sample)
        if self.estimator.by_row:
            released, spread = self._sum_rows(points, sample)
        else:
            parts = [_scale(w, value) for w, value in zip(self.weights, values)]
            total = _add(*parts)
            released = total.with_values(
                **{
                    n: clip_to(getattr(total, n), getattr(self.estimator.clip, n))
                    for n in self._own
                }
            )
            spread = jnp.asarray(2.0)
        noised = self._add_noise(released, spread)
        return [noised, *(pytrees.zeros(noised) for _ in points[1:])], cost

    @property
    def _own(self) -> str:
        """Names of the variables of this stage that are released."""
        return "".join(name for name in self.names if name in self.estimator.released)

    def _add_noise(self, value: Point, spread: jax.Array) -> Point:
        """Add noise of `spread` times clip, multiplier and the root of the number of variables."""
        names, estimator = self._own, self.estimator
        if not names:
            return value
        key = threefry.typed(threefry.fold_in(self.key, NOISE))
        noised = {}
        for name, part_key in zip(names, jax.random.split(key, len(names))):
            part, clip = getattr(value, name), getattr(estimator.clip, name)
            scale = estimator.multiplier * spread * clip * len(names) ** 0.5
            noise = pytrees.normal(part_key, part)
            noised[name] = pytrees.select(
                self.within, pytrees.axpy(scale, noise, part), pytrees.zeros(part)
            )
        return value.with_values(**noised)

    def _sum_rows(self, points: Sequence[Point], sample: Sample) -> tuple[Point, jax.Array]:
        """Return the mean of the clipped directions of sampled rows, and 1 / rows on average."""
        directions, problem = self.directions, self.directions.problem
        levels = [(problem.valid, 0, UPPER_ROWS)]
        if problem.lower is not None:
            levels += [(problem.train, 1, LOWER_ROWS)]
        total: Any = None
        counts = []
        for rows, part, purpose in levels:
            if part == 0 and not set(self.names) & set(directions.directions.upper_variables):
                continue

            def row_direction(row: jax.Array, part: Any = part) -> Point:
                where = Sample(row[None], row[None], row[None], None, sample.bits)
                parts = [directions.upper_and_lower_parts(p, where)[:2] for p in points]
                found = [pair[part] for pair in parts]
                value = _add(*(_scale(w, d) for w, d in zip(self.weights, found)))
                return Point(*map(_clip_part, value, self.estimator.clip))

            indices, is_chosen, expected = self._draw_rows(rows, purpose)
            value = pytrees.scale(1 / expected, sum_over_rows(row_direction, indices, is_chosen))
            counts.append(expected)
            total = value if total is None else pytrees.add(total, value)
        smallest = jnp.minimum(counts[0], counts[-1])
        return total, 1 / smallest

    def _draw_rows(self, rows: Any, purpose: int) -> tuple[jax.Array, jax.Array, jax.Array]:
        """Return a Poisson sample of one agent's rows, padded, and its expected size.

        Every row is drawn independently with probability b / n, by the site's secret: who knows
        the sample could undo what sampling hides.
        """
        data = jax.tree.leaves(rows.data)[0]
        length = data.shape[0 if rows.agent is None else 1] - rows.batch + 1
        numbers = jnp.arange(length)
        is_row = numbers < rows.count
        count = rows.count.astype(jnp.float32)
        if not self.estimator.size:
            return numbers, is_row, count
        expected = jnp.minimum(count, rows.batch)
        bits = threefry.bits(threefry.fold_in(self.key, purpose), (length,)) >> 8
        # One below the threshold, so that rounding never makes a row more likely.
        threshold = jnp.floor(expected / count * 2**24) - jnp.where(count > expected, 1, 0)
        chosen = is_row & (bits.astype(jnp.float32) < threshold)
        size = min(self.estimator.size, length)
        (indices,) = jnp.nonzero(chosen, size=size, fill_value=0)
        return indices, jnp.arange(size) < jnp.sum(chosen), expected


def sum_over_rows(row_direction: Any, indices: jax.Array, is_chosen: jax.Array) -> Any:
    """Return the sum of `row_direction` over the chosen rows, a few rows at a time."""

    def sum_chunk(indices: jax.Array, is_chosen: jax.Array) -> Any:
        values = jax.vmap(row_direction)(indices)
        add = lambda a: jnp.tensordot(is_chosen.astype(a.dtype), a, 1, precision="highest")
        return jax.tree.map(add, values)

    if len(indices) <= 2 * CHUNK:
        return sum_chunk(indices, is_chosen)
    padding = -len(indices) % CHUNK
    chunks = jnp.pad(indices, (0, padding)).reshape(-1, CHUNK)
    masks = jnp.pad(is_chosen, (0, padding)).reshape(-1, CHUNK)
    start = jax.tree.map(
        lambda a: jnp.zeros(a.shape, a.dtype), jax.eval_shape(row_direction, indices[0])
    )
    step = lambda total, chunk: (pytrees.add(total, sum_chunk(*chunk)), None)
    return jax.lax.scan(step, start, (chunks, masks))[0]


def clip_to(value: Tree, clip: Number) -> Tree:
    """Return the value, shortened to at most `clip`; 0 if it is not finite."""
    size = pytrees.norm(value)
    factor = jnp.minimum(1.0, clip / jnp.maximum(size, jnp.finfo(size.dtype).tiny))
    bounded = jnp.isfinite(size)
    return jax.tree.map(lambda a: jnp.where(bounded, factor.astype(a.dtype) * a, 0), value)


def _clip_part(value: Tree, clip: Number) -> Tree:
    return None if value is None else clip_to(value, clip)


def _scale(weights: Point, value: Point) -> Point:
    return Point(*(None if v is None else pytrees.scale(w, v) for w, v in zip(weights, value)))


def _add(*values: Point) -> Point:
    total = values[0]
    for value in values[1:]:
        total = pytrees.add(total, value)
    return total
