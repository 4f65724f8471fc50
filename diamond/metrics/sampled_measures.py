"""Measures on fixed samples of rows without y*, for lower levels that are large or not convex."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from ..core import pytrees
from ..core.pytrees import Tree
from ..problem import Objectives, Rows
from .agent_statistics import AgentStatistics
from .exact_measures import Metrics

ROWS = 1_024  # most rows per agent of the upper loss and of each metric
LOWER_ROWS = 256  # most rows per agent of the lower loss
LARGER_CHUNKS = 4  # rows whose loss is evaluated at a time, relative to a mini-batch
SUFFICIENT = 0.1  # least decrease of g in a step, relative to that of its linear model
SHORTER, MOST_TRIALS = 0.3, 12  # factor of a step that is too long, and most trials of a step


def measure_on_samples(
    problem: Objectives,
    rows: Rows,
    metrics: Metrics,
    x: Tree,
    y: Tree,
    z: Tree,
    over: AgentStatistics,
) -> tuple[dict[str, jax.Array], dict[str, jax.Array]]:
    """Return measures of all agents together, and of each agent, without solving for y*.

    `upper_loss` is 1/m sum_i f_i(xbar, y_i) on the first 1,024 validation rows of each agent,
    `local_loss` the same at the agents' own x. `lower_loss` is the mean of g_i(x_i, y_i) on the
    first 256 training rows, `lower_gradient` the root mean square of the norms of its gradients in
    y, and `value_gap` the mean of g_i(x_i, y_i) - g_i(x_i, y_i'), where y_i' lies a backtracked
    gradient step from y_i: 0 at a stationary point, and at most g_i - min g_i. Metrics use the
    first 1,024 of their rows. Averages take four mini-batches of rows at a time, those of gradients
    one.

    With a common lower level, the lower measures are those of 1/m sum_i g_i at the mean of y.
    """
    mean, level, chunk = over.average(x), problem.lower_level, problem.train.batch

    def measure_agent(problem: Objectives, rows: Rows, x: Tree, y: Tree) -> dict[str, jax.Array]:
        deviation = pytrees.sub(x, mean)
        several = LARGER_CHUNKS * chunk
        valid, tested = problem.valid.sample_rows(ROWS, several), rows.sample_rows(ROWS, several)
        points = jax.tree.map(lambda *a: jnp.stack(a), mean, x)  # f without x is evaluated once
        losses = jax.vmap(lambda x: valid.mean(problem.upper, x, y))(points)
        per_agent = {
            "consensus": pytrees.dot(deviation, deviation),
            "upper_loss": losses[0],
            "local_loss": losses[1],
        }
        if level == "personal":
            per_agent |= measure_lower_level(problem, x, y, chunk)
        return per_agent | {name: tested.mean(loss, x, y) for name, loss in metrics}

    def pooled_loss(y: Tree) -> jax.Array:
        value = lambda problem, x, y: lower_loss(problem, x, LARGER_CHUNKS * chunk)(y)
        evaluate = over.map_agents(value)
        return over.total(evaluate(problem, x, over.broadcast(y))) / over.count

    def pooled_gradient(y: Tree) -> Tree:
        evaluate = over.map_agents(lambda problem, x, y: jax.grad(lower_loss(problem, x, chunk))(y))
        return over.average(evaluate(problem, x, over.broadcast(y)))

    with jax.default_matmul_precision("highest"):
        per_agent = over.map_agents(measure_agent)(problem, rows, x, y)
        pooled = (
            descend(pooled_loss, pooled_gradient, over.average(y)) if level == "common" else None
        )
    sums = jax.tree.map(over.total, per_agent)
    measures = {name: value / over.count for name, value in sums.items()}
    measures["consensus"] = sums["consensus"]
    if "lower_gradient" in per_agent and level == "personal":
        squares = over.total(per_agent["lower_gradient"] ** 2)
        measures["lower_gradient"] = jnp.sqrt(squares / over.count)
    if pooled is not None:
        measures = {
            "lower_loss": pooled.first,
            "lower_gradient": jnp.sqrt(pooled.square),
            "value_gap": pooled.first - pooled.last,
        } | measures
        measures |= over.common_consensus(problem, y, z)
    if problem.prox is not None:
        measures["upper_loss"] += problem.prox.value(mean)
    return measures, per_agent


def lower_loss(problem: Objectives, x: Tree, chunk: int) -> Callable[[Tree], jax.Array]:
    """Return g_i(x, y) of one agent on its sample, as a function of y."""
    sample = problem.train.sample_rows(LOWER_ROWS, chunk)
    return lambda y: sample.mean(problem.lower, x, y)


def measure_lower_level(problem: Objectives, x: Tree, y: Tree, chunk: int) -> dict[str, jax.Array]:
    """Return the loss, the norm of its gradient and the value gap of one agent's lower level."""
    value = lower_loss(problem, x, LARGER_CHUNKS * chunk)
    descent = descend(value, jax.grad(lower_loss(problem, x, chunk)), y)
    return {
        "lower_loss": descent.first,
        "lower_gradient": jnp.sqrt(descent.square),
        "value_gap": descent.first - descent.last,
    }


class Descent(NamedTuple):
    """Values of a loss before and after a gradient step."""

    first: jax.Array  # value at the start
    square: jax.Array  # squared norm of the gradient there
    last: jax.Array  # value at the end


def descend(
    value: Callable[[Tree], jax.Array],
    gradient_at: Callable[[Tree], Tree],
    y: Tree,
) -> Descent:
    """Take a gradient step from y, as long as decreases the value enough.

    The first trial is the larger of 1 and |value| / ||gradient||^2. All values are those of one
    function, whose rounding they share. Memory: the gradient and one more point.
    """
    loss, gradient = value(y), gradient_at(y)
    square = pytrees.dot(gradient, gradient).astype(loss.dtype)
    is_enough = lambda length, after: after <= loss - SUFFICIENT * length * square

    def too_long(trial: tuple[jax.Array, jax.Array, jax.Array]) -> jax.Array:
        length, after, count = trial
        return ~is_enough(length, after) & (count < MOST_TRIALS)

    def shorten(trial: tuple[jax.Array, jax.Array, jax.Array]) -> Any:
        length, count = trial[0] * SHORTER, trial[2]
        moved = jax.tree.map(lambda a, g: a - length.astype(a.dtype) * g, y, gradient)
        return length, value(moved), count + 1

    longest = jnp.maximum(jnp.abs(loss) / square, 1)
    begin = longest / SHORTER, jnp.full_like(loss, jnp.inf), jnp.zeros((), jnp.int32)
    length, after, _count = jax.lax.while_loop(too_long, shorten, begin)
    return Descent(loss, square, jnp.where(is_enough(length, after), after, loss))
