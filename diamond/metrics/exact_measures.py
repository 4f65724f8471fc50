"""Exact measures: the three terms of eq. (11), the losses, the user's metrics."""

from collections.abc import Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..core import pytrees, sampling
from ..core.cost_counter import Cost
from ..core.pytrees import Tree
from ..hypergradient.diagnostics.lipschitz import Probes, probes
from ..problem import Loss, Objectives, Problem, Rows
from . import lower_solution
from .agent_statistics import AgentStatistics
from .standard_errors import MeasuredPoints, standard_errors

Metrics = tuple[tuple[str, Loss], ...]
BATCHES = 2  # mini-batches per agent on which g_yy is estimated


def measure(
    problem: Objectives,
    rows: Rows,
    metrics: Mapping[str, Loss],
    x: Tree,
    y: Tree,
    z: Tree = None,
) -> tuple[dict[str, jax.Array], dict[str, jax.Array]]:
    """Return the measures of all agents together, and those of each agent.

        metric = ||grad l(xbar)||^2 + sum_i ||x_i - xbar||^2 + sum_i ||y_i*(x_i) - y_i||^2   (11)

    Its terms are `stationarity`, `consensus` and `lower_error`; `definition1` is their sum with the
    consensus term divided by m, as in Definition 1. grad l and y* are exact, on all rows, to
    `newton.default_tolerance`. `solver_error` is the largest remaining error: infinite if g_yy is
    not positive definite, so that y* does not exist or is not unique. Measures that need y* are
    then NaN. `upper_loss` is the objective l(xbar) = 1/m sum_i f_i(xbar, y_i*(xbar)); `local_loss`
    is the mean of f_i(x_i, y_i), which agents can lower by disagreeing on x. Both use all
    validation rows. Metrics are averages over the agents, each at its own (x_i, y_i).

    With a common lower level, y*(xbar) minimizes 1/m sum_i g_i, `lower_error` is the sum of
    ||y*(xbar) - y_i||^2, and `y_consensus` and `z_consensus` (for a method with `z`) are the
    squared distances to the mean, not part of the metric. Without a lower level, `lower_error` is
    0. With a prox, `stationarity` is ||xbar - prox(xbar - grad l(xbar))||^2 and `upper_loss`
    contains the regularizer.

    Measures on a stream use a sample of rows and have standard errors: `upper_loss_se` and so on
    (`standard_errors`).
    """
    return _measure(problem, rows, tuple(metrics.items()), x, y, z)


@partial(jax.jit, static_argnames="metrics")
def _measure(
    problem: Objectives, rows: Rows, metrics: Metrics, x: Tree, y: Tree, z: Tree
) -> tuple[dict[str, jax.Array], dict[str, jax.Array]]:
    places = problem.train.count.shape[0]
    return measure_exactly(problem, rows, metrics, x, y, z, AgentStatistics(places, places))


def curvature_probes(problem: Problem, y: Tree, seed: int, places: int) -> Probes | None:
    """Draw two mini-batches per agent, by a `y` of one; extra `places` repeat the last agent."""
    if problem.lower is None:
        return None
    agents = np.minimum(np.arange(places), problem.agents - 1)
    counts = problem.counts("train")[agents]
    return probes(sampling.key(seed), agents, counts, y, BATCHES)


def _solve_in_sequence(
    problem: Objectives, xs: tuple[Tree, ...], y: Tree
) -> list[lower_solution.Solution]:
    """Solve the lower level at each of `xs`, each from the previous solution: compiled once."""

    def step(y: Tree, x: Tree) -> tuple[Tree, lower_solution.Solution]:
        solution = lower_solution.solve_lower_level(problem, x, y)
        return solution.y, solution

    _, solution = jax.lax.scan(step, y, jax.tree.map(lambda *a: jnp.stack(a), *xs))
    return [jax.tree.map(lambda a, k=k: a[k], solution) for k in range(len(xs))]


def measure_exactly(
    problem: Objectives,
    rows: Rows,
    metrics: Metrics,
    x: Tree,
    y: Tree,
    z: Tree,
    over: AgentStatistics,
) -> tuple[dict[str, jax.Array], dict[str, jax.Array]]:
    """Compute `measure` inside a program."""
    total, count, average = over.total, over.count, over.average
    is_sampled = any(part.is_sample for part in (problem.train, problem.valid, rows))
    mean, level = average(x), problem.lower_level

    def valid_or_nan(value: jax.Array, error: jax.Array) -> jax.Array:
        """Return `value`, which needs y*; NaN if y* was not found."""
        return jnp.where(jnp.isfinite(error), value, jnp.nan)

    def solution_and_gradient(
        oracle: lower_solution.Oracle, solution: lower_solution.Solution
    ) -> tuple[lower_solution.Solution, Tree]:
        """Return a solution at xbar, with an infinite error if invalid, and the hypergradient."""
        h, error = lower_solution.checked_implicit_hypergradient(oracle, mean, solution.y)
        error = jnp.where(jnp.isfinite(solution.error), solution.error + error, solution.error)
        return solution._replace(error=error), h

    def measure_agent(problem: Objectives, rows: Rows, x: Tree, y: Tree) -> tuple[Any, Any, Any]:
        if level == "personal":
            own_solution, mean_solution = _solve_in_sequence(problem, (x, mean), y)
            mean_solution, gradient = solution_and_gradient(
                lower_solution.AgentOracle(problem), mean_solution
            )
        elif level == "common":
            own_solution, gradient = common
            mean_solution = own_solution
        else:
            own_solution = mean_solution = lower_solution.Solution(None, jnp.zeros(()), Cost())
            gradient = jax.grad(problem.f)(mean, None, None)
        deviation, gap = pytrees.sub(x, mean), pytrees.sub(own_solution.y, y)
        error = jnp.maximum(own_solution.error, mean_solution.error)
        per_agent = {
            "consensus": pytrees.dot(deviation, deviation),
            "lower_error": valid_or_nan(pytrees.dot(gap, gap), error),
            "upper_loss": valid_or_nan(problem.f(mean, mean_solution.y, None), error),
            "local_loss": problem.f(x, y, None),
            "solver_error": error,
        }
        solved = (
            (own_solution.y, mean_solution.y)
            if is_sampled and level == "personal"
            else (None, None)
        )
        return gradient, per_agent | {name: rows.mean(loss, x, y) for name, loss in metrics}, solved

    with jax.default_matmul_precision("highest"):
        pooled_oracle = over.pooled_oracle(problem) if level == "common" else None
        common: Any = pooled_oracle and solution_and_gradient(
            pooled_oracle, lower_solution.solve_newton(pooled_oracle, mean, average(y))
        )
        gradients, per_agent, solved = over.map_agents(measure_agent)(problem, rows, x, y)
    gradient, sums = average(gradients), jax.tree.map(total, per_agent)

    def stationarity_vector(gradient: Tree) -> Tree:
        """Return xbar - prox(xbar - grad l(xbar)): the gradient if there is no prox."""
        if problem.prox is None:
            return gradient
        return pytrees.sub(mean, problem.prox(pytrees.sub(mean, gradient), 1.0))

    errors = {}
    if is_sampled:
        if pooled_oracle is not None:
            solved = common[0].y, common[0].y
        points = MeasuredPoints(x, y, mean, solved[0], solved[1], gradient, stationarity_vector)
        with jax.default_matmul_precision("highest"):
            errors = standard_errors(problem, rows, metrics, points, over, pooled_oracle)
    gradient = stationarity_vector(gradient)
    regularizer = 0.0 if problem.prox is None else problem.prox.value(mean)
    error = per_agent["solver_error"].max()
    stationarity = valid_or_nan(pytrees.dot(gradient, gradient), error)
    measures = {
        "stationarity": stationarity,
        "consensus": sums["consensus"],
        "lower_error": sums["lower_error"],
        **over.common_consensus(problem, y, z),
        "metric": stationarity + sums["consensus"] + sums["lower_error"],
        "definition1": stationarity + sums["consensus"] / count + sums["lower_error"],
        "upper_loss": sums["upper_loss"] / count + regularizer,
        "local_loss": sums["local_loss"] / count,
        **{name: sums[name] / count for name, _ in metrics},
        "solver_error": error,
        **errors,
    }
    return measures, per_agent


def upper_loss(
    problem: Objectives, x: Tree, y: Tree, guess: Tree, over: AgentStatistics
) -> tuple[jax.Array, Tree]:
    """Return l(xbar) = 1/m sum_i f_i(xbar, y_i*(xbar)) on all rows, and y*(xbar) per agent.

    The solution starts from `guess`, y* of the previous evaluation, or from y if `guess` is not
    finite.
    """
    mean, level = over.average(x), problem.lower_level

    def personal(problem: Objectives, mean: Tree, guess: Tree) -> tuple[jax.Array, Tree]:
        solution = lower_solution.solve_lower_level(problem, mean, guess).y
        return problem.f(mean, solution, None), solution

    with jax.default_matmul_precision("highest"):
        if level != "none":
            guess = pytrees.select(pytrees.finite(guess), guess, y)
        if level == "personal":
            losses, guess = over.map_agents(personal)(problem, over.broadcast(mean), guess)
        else:
            if level == "common":
                start = over.average(guess)
                guess = over.broadcast(
                    lower_solution.solve_newton(over.pooled_oracle(problem), mean, start).y
                )
            evaluate = over.map_agents(lambda objectives, mean, y: objectives.f(mean, y, None))
            losses = evaluate(problem, over.broadcast(mean), guess)
    regularizer = 0.0 if problem.prox is None else problem.prox.value(mean)
    return over.total(losses) / over.count + regularizer, guess
