"""Comparison of an estimator with the exact hypergradient."""

from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ...core import pytrees, sampling
from ...core.cost_counter import Cost
from ...core.pytrees import Tree
from ...core.sampling import AGENT_AXES, Sampling
from ...hardware.compiler import MEASURE_OPTIONS, compile_program
from ...problem import Objectives, Problem
from ...schedules.deferred import ResolutionContext, select_agent_values, with_numbers
from ...schedules.learned import with_learned_values
from ..estimator_interface import Hypergradient
from ..exact_hypergradient import exact
from .lipschitz import lipschitz


@dataclass(frozen=True)
class Report:
    """Result of `check`: arrays with one entry per agent."""

    norm: np.ndarray  # norm of the exact hypergradient at (x, y)
    bias: np.ndarray  # ||mean estimate - exact||
    sampling_error: np.ndarray  # one standard deviation of the mean estimate
    deviation: np.ndarray  # sqrt(E ||estimate - mean||^2) of one estimate
    cost: Cost  # rows per estimate, mean over draws and agents
    draws: int

    def __str__(self) -> str:
        lines = [f"{self.draws} draws in float64, against the exact hypergradient on all rows"]
        lines += ["agent        norm        bias   (+- error)   deviation"]
        columns = zip(self.norm, self.bias, self.sampling_error, self.deviation)
        lines += [
            f"{i:5d}  {n:10.4g}  {b:10.3g}  {e:10.2g}  {d:10.3g}"
            for i, (n, b, e, d) in enumerate(columns)
        ]
        spent = ", ".join(f"{name} {value:.1f}" for name, value in self.cost._asdict().items())
        return "\n".join([*lines, f"one estimate costs: {spent}"])


def check(
    problem: Problem,
    estimator: Hypergradient,
    x: Tree | None = None,
    y: Tree | None = None,
    batch: int = 64,
    draws: int = 1000,
    seed: int = 0,
    sampling: Sampling = "blocks",
) -> Report:
    """Measure bias, variance and cost of `estimator` at (x, y).

    The reference is eq. (4) on all rows of an agent, with its Hessian formed and solved. Numbers
    that a run would learn come from `lipschitz`, and a warm start begins with z = 0. A bias within
    a few `sampling_error` is not significant.

    Args:
        problem: the problem.
        estimator: an estimator of `diamond.hypergradient`.
        x, y: the point; by default the problem's start.
        batch: rows in a mini-batch.
        draws: number of estimates per agent.
        seed: seed of the draws.
        sampling: "blocks" or "rows", as in `diamond.simulate`.

    Returns:
        The report.
    """
    with jax.enable_x64(True):
        to_float64 = lambda a: jax.tree.map(lambda a: jnp.asarray(a, jnp.float64), a)
        x0, y0 = problem.start(seed)
        point = to_float64(x0 if x is None else x), to_float64(y0 if y is None else y)
        bound, _ = lipschitz(problem, *point, batch, seed)
        values = {
            "lipschitz": bound,
            "beta": 1 / bound,
            "z": jax.tree.map(jnp.zeros_like, point[1]),
        }
        estimator = with_learned_values(estimator, values)
        estimator = with_numbers(estimator, ResolutionContext(problem, None, batch, seed))
        objectives = problem.objectives(batch)
        moments = _moments(
            estimator, objectives, point, draws, key=_key(seed), batch=batch, sampling=sampling
        )
        norm, bias, error, deviation, cost = jax.tree.map(np.asarray, moments)
    return Report(norm, bias, error, deviation, Cost(*(float(c) for c in cost)), draws)


@compile_program("draws", "batch", "sampling", options=MEASURE_OPTIONS, small=0)
def _moments(
    estimator: Hypergradient,
    objectives: Objectives,
    point: tuple[Tree, Tree],
    draws: int,
    *,
    key: jax.Array,
    batch: int,
    sampling: Sampling,
) -> tuple[Any, ...]:
    agents = jnp.arange(objectives.train.count.shape[0])
    rows = objectives.train.stored, objectives.valid.stored
    drawn = partial(
        _draw, hessian_batches=estimator.hessian_batches, batch=batch, sampling=sampling
    )

    def estimate(t: jax.Array) -> tuple[Tree, Cost]:
        sample = jax.vmap(drawn, (None, None, 0, 0), AGENT_AXES)(key, t, agents, rows)
        of_agent = lambda i, problem, sample: select_agent_values(estimator, i)(
            problem, [point], sample
        )
        (value,), cost = jax.vmap(of_agent, (0, 0, AGENT_AXES))(agents, objectives, sample)
        return value, cost

    def reference(problem: Objectives) -> Tree:
        (value,), _ = exact()(problem, [point], _ALL_ROWS)
        return value

    def add(t: jax.Array, sums: tuple[Any, ...]) -> tuple[Any, ...]:
        value, cost = estimate(t)
        error_sum, square_sum, spent = sums
        error = pytrees.sub(value, exact_values)
        cost = Cost(*(jnp.mean(1.0 * jnp.asarray(c)) for c in cost))
        return pytrees.add(error_sum, error), square_sum + squares(error), pytrees.add(spent, cost)

    exact_values = jax.vmap(reference)(objectives)
    squares = jax.vmap(lambda a: pytrees.dot(a, a))
    zero = jnp.zeros(len(agents))
    start = pytrees.zeros(exact_values), zero, Cost(*(jnp.zeros(()) for _ in Cost._fields))
    error_sum, square_sum, spent = jax.lax.fori_loop(0, draws, add, start)
    mean = pytrees.scale(1 / draws, error_sum)  # mean error
    variance = jnp.maximum(square_sum / draws - squares(mean), 0)
    bias, deviation = jnp.sqrt(squares(mean)), jnp.sqrt(variance)
    norms = jnp.sqrt(squares(exact_values))
    return norms, bias, deviation / jnp.sqrt(draws), deviation, pytrees.scale(1 / draws, spent)


_draw, _key = sampling.draw, sampling.key
_ALL_ROWS = sampling.Sample(None, None, None, None, None)
