"""Standard errors of measures on a sample of a stream.

To first order, a row r of the sample changes a measure by its influence. For a number q with

    dq = alpha df + v dh + u dy*,     h = f_x - g_xy z,  g_yy z = f_y,  g_y(x, y*) = 0

the influence is, with D the derivative along (v, -a), a = g_yy^-1 g_yx v,

    alpha f_r + D f_r               of a validation row,
    -z D (g_r)_y - b (g_r)_y        of a training row, b = g_yy^-1 (alpha f_y + D(f_y - g_yy z) + u)

with z fixed in D. The variance of q is that of the mean of the influences, added up over the
agents. A squared norm |q + e|^2 whose error e is not small compared to q has the variance of 2 q e,
and a mean square of |e|^2 of at most 3 (E |e|^2)^2, estimated along random directions: its standard
error here is the root mean square error, including bias.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from ..core import pytrees
from ..core.linear_solvers import conjugate_gradient
from ..core.newton import CG_STEPS, default_tolerance
from ..core.pytrees import Tree
from ..core.sampling import key
from ..problem import Loss, Objectives, Rows
from .agent_statistics import AgentStatistics
from .lower_solution import AgentOracle, Oracle

SUFFIX = "_se"
PROBES = 4  # number of random directions


class MeasuredPoints(NamedTuple):
    """Points of the agents, and the measured values there."""

    x: Tree  # of all agents
    y: Tree
    mean: Tree  # xbar
    own_solution: Tree  # y*(x_i) of all agents, or the common y*
    mean_solution: Tree  # y*(xbar), likewise
    gradient: Tree  # the mean hypergradient
    stationarity_vector: Callable[[Tree], Tree]  # stationarity is the squared norm of its result


class DifferentialCoefficients(NamedTuple):
    """Coefficients of dq = alpha df + v dh + u dy*, for several q along a first axis."""

    alpha: jax.Array
    v: Tree
    u: Tree


class Adjoint(NamedTuple):
    """Adjoint solutions from which the influences of rows on q are computed."""

    z: Tree = None
    a: Tree = None
    b: Tree = None


def standard_errors(
    problem: Objectives,
    rows: Rows,
    metrics: Sequence[tuple[str, Loss]],
    points: MeasuredPoints,
    over: AgentStatistics,
    pooled_oracle: Oracle | None,
) -> dict[str, jax.Array]:
    """Return the standard errors of the results of `measure`, by name and "_se".

    `pooled_oracle` is that of a common lower level.
    """
    variances = over.map_agents(partial(average_variances, metrics))(
        problem, rows, points.x, points.y
    )
    errors = {name: jnp.sqrt(over.total(v)) / over.count for name, v in variances.items()}
    inputs = problem, points, over, pooled_oracle
    errors |= _upper_errors(*inputs) | {"lower_error": jnp.zeros(())}
    if problem.lower is not None:
        errors["lower_error"] = _lower_error(*inputs)
    errors["metric"] = errors["stationarity"] + errors["lower_error"]  # upper bound
    return {name + SUFFIX: value for name, value in errors.items()}


def average_variances(
    metrics: Sequence[tuple[str, Loss]], problem: Objectives, rows: Rows, x: Tree, y: Tree
) -> dict[str, jax.Array]:
    """Return the variances of averages over one agent's rows: its loss, and the metrics."""
    variances = {name: rows.variance(loss, x, y) for name, loss in metrics}
    return variances | {"local_loss": problem.valid.variance(problem.upper, x, y)}


def _upper_errors(
    problem: Objectives, points: MeasuredPoints, over: AgentStatistics, pooled_oracle: Oracle | None
) -> dict[str, jax.Array]:
    """Variances of upper_loss = 1/m sum_i f_i and stationarity = |shown(1/m sum_i h_i)|^2."""
    value, pull_back = jax.vjp(points.stationarity_vector, points.gradient)
    directions = [pytrees.scale(2.0, value), *_directions(0, points.mean)]
    zero_x, zero_y = pytrees.zeros(points.mean), _zeros(points.y)
    coefficients = [DifferentialCoefficients(jnp.ones(()), zero_x, zero_y)]
    coefficients += [
        DifferentialCoefficients(jnp.zeros(()), pull_back(direction)[0], zero_y)
        for direction in directions
    ]
    mean, stacked = points.mean, _stack(coefficients)
    if pooled_oracle is None:
        mean, stacked = over.broadcast((mean, stacked))
    loss, slope_variance, *noise_variances = (
        _total_variances(problem, mean, points.mean_solution, stacked, over, pooled_oracle)
        / over.count**2
    )
    return {
        "upper_loss": jnp.sqrt(loss),
        "stationarity": _squared_norm_error(slope_variance, noise_variances),
    }


def _lower_error(
    problem: Objectives, points: MeasuredPoints, over: AgentStatistics, pooled_oracle: Oracle | None
) -> jax.Array:
    """Return the variance of sum_i ||y* - y_i||^2."""
    zero_x, directions = pytrees.zeros(points.mean), _directions(1, _zeros(points.y))
    coefficients_of = lambda u: DifferentialCoefficients(jnp.zeros(()), zero_x, u)
    all_coefficients = lambda deviation: _stack(
        [coefficients_of(pytrees.scale(2.0, deviation)), *map(coefficients_of, directions)]
    )
    deviation = jax.tree.map(
        lambda own_solution, y: own_solution - y, points.own_solution, points.y
    )
    of = lambda x, coefficients: _total_variances(
        problem, x, points.own_solution, coefficients, over, pooled_oracle
    )
    if pooled_oracle is None:
        slope_variance, *noise_variances = of(points.x, jax.vmap(all_coefficients)(deviation))
        return _squared_norm_error(slope_variance, noise_variances)
    summed_coefficients = all_coefficients(jax.tree.map(over.total, deviation))
    slope_variance, *noise_variances = of(points.mean, summed_coefficients) / over.count**2
    return _squared_norm_error(
        slope_variance, [over.count * variance for variance in noise_variances]
    )


def _total_variances(
    problem: Objectives,
    x: Tree,
    y: Tree,
    coefficients: DifferentialCoefficients,
    over: AgentStatistics,
    pooled_oracle: Oracle | None,
) -> jax.Array:
    """Return the variance of each q, summed over the agents whose rows are samples."""
    if pooled_oracle is None:
        return over.total(over.map_agents(_agent_variances)(problem, x, y, coefficients))
    adjoints = jax.vmap(lambda row: _adjoint(pooled_oracle, x, y, row))(coefficients)
    variances = over.map_agents(
        lambda objectives: _variances(objectives, x, y, coefficients, adjoint=adjoints)
    )
    return over.total(variances(problem))


def _squared_norm_error(
    slope_variance: jax.Array, noise_variances: Sequence[jax.Array]
) -> jax.Array:
    return jnp.sqrt(slope_variance + 3 * (sum(noise_variances) / len(noise_variances)) ** 2)


def _agent_variances(
    objectives: Objectives, x: Tree, y: Tree, coefficients: DifferentialCoefficients
) -> jax.Array:
    """Return the variances of one agent with a personal lower level or none."""
    if objectives.lower is None:
        return _variances(objectives, x, y, coefficients, adjoint=Adjoint())
    adjoints = jax.vmap(lambda row: _adjoint(AgentOracle(objectives), x, y, row))(coefficients)
    return _variances(objectives, x, y, coefficients, adjoint=adjoints)


def _adjoint(oracle: Oracle, x: Tree, y: Tree, coefficients: DifferentialCoefficients) -> Adjoint:
    f_y = lambda x, y: oracle.upper(x, y)[1]
    product = jax.linearize(lambda y: oracle.lower(x, y), y)[1]
    step_tolerance = default_tolerance(pytrees.norm(y).dtype)
    solve = lambda b: conjugate_gradient(product, b, CG_STEPS, step_tolerance)[0]
    z = solve(f_y(x, y))
    a = solve(jax.jvp(lambda x: oracle.lower(x, y), (x,), (coefficients.v,))[1])

    def slope(x: Tree, y: Tree) -> Tree:
        """Return f_y - g_yy z, with z fixed."""
        hessian_product = jax.jvp(lambda y: oracle.lower(x, y), (y,), (z,))[1]
        return pytrees.sub(f_y(x, y), hessian_product)

    change = jax.jvp(slope, (x, y), (coefficients.v, pytrees.scale(-1.0, a)))[1]
    return Adjoint(
        z,
        a,
        solve(pytrees.axpy(coefficients.alpha, f_y(x, y), pytrees.add(change, coefficients.u))),
    )


def _variances(
    objectives: Objectives,
    x: Tree,
    y: Tree,
    coefficients: DifferentialCoefficients,
    *,
    adjoint: Adjoint,
) -> jax.Array:
    """Return, for each q, the variance of the mean of one agent's influences."""

    def influence_variance(coefficients: DifferentialCoefficients, adjoint: Adjoint) -> jax.Array:
        if objectives.lower is None:

            def of_row(x: Tree, y: Tree, rows: Tree) -> jax.Array:
                value, change = jax.jvp(
                    lambda x: objectives.upper(x, y, rows), (x,), (coefficients.v,)
                )
                return coefficients.alpha * value + change

            return objectives.valid.variance(of_row, x, y)
        tangent = coefficients.v, pytrees.scale(-1.0, adjoint.a)

        def upper(x: Tree, y: Tree, rows: Tree) -> jax.Array:
            value, change = jax.jvp(lambda x, y: objectives.upper(x, y, rows), (x, y), tangent)
            return coefficients.alpha * value + change

        def lower(x: Tree, y: Tree, rows: Tree) -> jax.Array:
            g_y = lambda x, y: jax.grad(objectives.lower, 1)(x, y, rows)
            value, change = jax.jvp(g_y, (x, y), tangent)
            return -pytrees.dot(adjoint.z, change) - pytrees.dot(adjoint.b, value)

        return objectives.valid.variance(upper, x, y) + objectives.train.variance(lower, x, y)

    return jax.vmap(influence_variance)(coefficients, adjoint)


def _directions(number: int, shape: Tree) -> list[Tree]:
    return [pytrees.normal(k, shape) for k in jax.random.split(key(number), PROBES)]


def _zeros(y: Tree) -> Tree:
    """Return zeros in the shape of one agent's y."""
    return jax.tree.map(lambda a: jnp.zeros_like(a[0]), y)


def _stack(trees: Sequence[Any]) -> Any:
    return jax.tree.map(lambda *a: jnp.stack(a), *trees)
