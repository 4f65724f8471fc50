"""Local solution of one agent's lower level: inexact Newton for y, conjugate gradients for z.

z solves g_yy z = f_y. Both start from the values of the previous round, so few products suffice.
Nothing here is sent.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from ..core import pytrees
from ..core.cost_counter import Cost
from ..core.linear_solvers import conjugate_gradient
from ..core.pytrees import Tree
from ..core.sampling import Sample, Where, is_stream
from ..problem import Objectives

PRODUCTS = 40  # maximum number of products of conjugate gradients
SUFFICIENT = 0.1  # least decrease of g in a Newton step, relative to that of its linear model
SHORTER, MOST_TRIALS = 0.25, 8  # factor of a step that is too long, and most trials of a step
ROUNDING = 10.0  # changes of g below so many units of rounding are none


class LocalLimits(NamedTuple):
    """How far local work goes."""

    newton_steps: Any
    goal: Any  # factor to which Newton's steps reduce ||g_y||
    tolerance: Any  # relative residual of conjugate gradients


AT_START, LATER = LocalLimits(20, 0.1, 0.3), LocalLimits(1, 0.3, 0.03)


class LocalSolution(NamedTuple):
    """y and z of one agent after local work."""

    y: Tree
    z: Tree
    reference: jax.Array  # ||g_y|| before
    cost: Cost


def run_if(condition: jax.Array, work: Callable[[], Tree], otherwise: Tree) -> Tree:
    """Return `work()` if `condition` holds, else `otherwise`.

    Mapped over agents, `jax.lax.cond` would work for all agents in every round; a loop of at most
    one iteration works only in rounds in which some agent needs it.
    """
    run_once = lambda carry: (jnp.zeros_like(carry[0]), jax.tree.map(_cast_like, work(), carry[1]))
    return jax.lax.while_loop(lambda carry: carry[0], run_once, (condition, otherwise))[1]


def _cast_like(value: Any, example: jax.Array) -> jax.Array:
    return jnp.asarray(value).astype(example.dtype)


class LocalWorkRows(NamedTuple):
    """Rows for local work, and their number."""

    where: Where
    number: Any


def local_rows(rows: Any, where: Where, batches: int) -> LocalWorkRows:
    """Return all rows of an agent, or `batches` batches from `where` on if it has more.

    For a stream: the drawn batch.
    """
    if is_stream(where):
        return LocalWorkRows(where, rows.size(where))
    number = batches * rows.batch
    if where is None or rows.most_rows <= number:
        return LocalWorkRows(None, rows.count)
    begin = where if jnp.ndim(where) == 0 else where[0]
    return LocalWorkRows((begin + jnp.arange(number)) % rows.count, number)


def takes_all_rows(problem: Objectives, sample: Sample, batches: int) -> bool:
    """Return whether local work takes all rows of an agent, or the drawn batch of a stream."""
    pairs = (problem.train, sample.lower), (problem.valid, sample.upper)
    return all(is_stream(w) or local_rows(rows, w, batches).where is None for rows, w in pairs)


def solve_locally(
    problem: Objectives,
    x: Tree,
    y: Tree,
    z: Tree,
    sample: Sample,
    batches: int,
    limits: LocalLimits,
) -> LocalSolution:
    """Improve y and z at x.

    Args:
        batches: maximum number of mini-batches, if the agent has more rows.
        limits: `AT_START` settles y before x first moves, `LATER` is less work.

    Returns:
        y, z, ||g_y|| before, and the rows charged.
    """
    train = local_rows(problem.train, sample.lower, batches)
    valid = local_rows(problem.valid, sample.upper, batches)
    lower_gradient = lambda y: jax.grad(problem.g, 1)(x, y, train.where)
    evaluate = lambda y: jax.value_and_grad(problem.g, 1)(x, y, train.where)
    value, gradient = evaluate(y)
    reference = pytrees.norm(gradient)
    zero, one = pytrees.mapped_with((jnp.int32(0), jnp.int32(1)), reference)

    def unsettled(carry: Any) -> jax.Array:
        _, _, gradient, steps, _, _ = carry
        return (steps < limits.newton_steps) & (pytrees.norm(gradient) > limits.goal * reference)

    def newton(carry: Any) -> Any:
        """Take a Newton step that decreases g: Armijo's rule, at most MOST_TRIALS trials."""
        y, value, gradient, steps, gradients, count = carry
        product = jax.linearize(lower_gradient, y)[1]
        move, iterations = conjugate_gradient(product, gradient, PRODUCTS, limits.tolerance)
        slope = pytrees.dot(move, gradient)
        noise = ROUNDING * jnp.finfo(value.dtype).eps * jnp.abs(value)

        def too_long(trial: Any) -> jax.Array:
            length, _, new_value, _, trials = trial
            is_less = new_value <= value - SUFFICIENT * length * slope + noise
            return ~is_less & (trials < MOST_TRIALS)

        def try_length(length: jax.Array, trials: jax.Array) -> Any:
            moved = pytrees.axpy(-length, move, y)
            return length, moved, *evaluate(moved), trials + 1

        shorten = lambda trial: try_length(SHORTER * trial[0], trial[-1])
        first = try_length(jnp.ones_like(slope), zero)
        _, *moved, trials = jax.lax.while_loop(too_long, shorten, first)
        return *moved, steps + 1, gradients + trials, count + iterations

    start = y, value, gradient, zero, one, zero
    y, _, _, _, gradients, count = jax.lax.while_loop(unsettled, newton, start)

    f_y = jax.grad(problem.f, 1)(x, y, valid.where)
    product = jax.linearize(lower_gradient, y)[1]
    residual = pytrees.sub(f_y, product(z))
    ratio = pytrees.norm(f_y) / jnp.maximum(pytrees.norm(residual), jnp.finfo(reference.dtype).tiny)
    move, iterations = conjugate_gradient(product, residual, PRODUCTS, limits.tolerance * ratio)
    cost = Cost(
        samples=train.number + valid.number,
        gradients=gradients * train.number + valid.number,
        hvps=(count + iterations + 1) * train.number,
    )
    return LocalSolution(y, pytrees.add(z, move), reference, cost)
