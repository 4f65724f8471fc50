"""Scores of a run beside those of each agent alone, and of one model of all rows."""

import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..core.pytrees import Tree
from ..core.suggestions import did_you_mean
from ..problem import Problem, Rows
from ..records.cooperation import Cooperation
from ..records.predictor import agent_names
from ..records.run import Run
from .solve_problem import block_size, solve

LARGER_IS_BETTER = {"accuracy": True, "auc": True, "f1": True}


def compare_alone(run: Run, measure: str | None = None, progress: bool = True) -> Run:
    """Measure what cooperating is worth: train each agent alone, and one model of all rows.

    Both are made by `diamond.solve`. Scores are those of the held-out rows of every agent: the rows
    of `test`, or else of `valid`. `run.summary()` and reports show them.

    Args:
        run: Run of a problem whose rows are all in this process.
        measure: Name of a metric of the problem, or "loss", the upper loss f_i(x, y). Default: the
            first metric, or "loss".
        progress: Show the runs on stderr if it is a terminal or a notebook.

    Returns:
        The run with `cooperation`.

    Raises:
        ValueError: The run does not know its problem, has one agent, or its rows are a stream.

    Examples:
        >>> run = diamond.solve(diamond.gallery.quadratic(agents=2), diamond.network.ring(2))
        >>> diamond.compare_alone(run).cooperation.measure
        'loss'
    """
    problem = _check(run)
    measure, score = _find_score(problem, measure)
    part = problem.measured_part
    block = block_size(problem) if problem.has_lower_solution else None

    def make_run(some: Problem) -> Run:
        with warnings.catch_warnings():
            warnings.filterwarnings(
                "ignore", "batch = ", RuntimeWarning
            )  # repeated rows count once
            return solve(some, seed=run.seed, batch=block, measure="loss", progress=progress)

    alone = [make_run(problem.select_agents([i], same_shapes=True)) for i in range(problem.agents)]
    pooled = make_run(problem.pool_agents())
    stack = lambda *models: jax.tree.map(lambda *leaves: np.stack(leaves), *models)
    model = lambda single: jax.tree.map(lambda leaf: np.asarray(leaf)[0], (single.x, single.y))
    scores = {
        "together": (run.x, run.y),
        "alone": stack(*map(model, alone)),
        "pooled": stack(*[model(pooled)] * problem.agents),
    }
    values = _measure(problem.stack(part), score, scores)
    cooperation = Cooperation(
        measure,
        "test" if part == "test" else "validation",
        list(agent_names(problem.agent_names, problem.agents)),
        larger_is_better=_is_larger_better(run, measure),
        **values,
    )
    return replace(run, cooperation=cooperation)


def _check(run: Run) -> Problem:
    """Return the problem of a run that can be compared."""
    problem = run.problem
    if problem is None:
        raise ValueError(
            "the run does not know its problem: load it by diamond.load(folder, problem)"
        )
    reason = ""
    if problem.agents < 2:
        reason = "the run has one agent; give a run of several"
    elif problem.streams:
        reason = "its rows are a stream, so there are no held-out rows; give the problem arrays"
    elif len(problem.loaded_agents) < problem.agents:
        reason = "rows of some agents are in other processes; make the run in one process"
    if reason:
        raise ValueError(f"learning alone cannot be compared: {reason}")
    return problem


def _find_score(problem: Problem, measure: str | None) -> tuple[str, Callable[..., jax.Array]]:
    """Return the name and the function of the score."""
    functions = problem.metrics | {"loss": problem.upper}
    name = next(iter(functions)) if measure is None else measure
    if name not in functions:
        raise ValueError(f"measure = {name!r} is no metric; {did_you_mean(name, functions)}")
    return name, functions[name]


def _measure(
    rows: Rows, score: Callable[..., jax.Array], models: dict[str, tuple[Tree, Tree]]
) -> dict[str, list[float]]:
    """Return the scores of each agent's models, and the standard errors of their differences."""

    @jax.jit
    @jax.vmap
    def measure(rows: Rows, models: dict[str, tuple[Tree, Tree]]) -> dict[str, jax.Array]:
        scores = {kind: rows.mean(score, *model) for kind, model in models.items()}
        one, other = (rows.row_losses(score, *models[kind]) for kind in ("together", "alone"))
        difference = one - other - (scores["together"] - scores["alone"])
        is_row = jnp.arange(len(difference)) < rows.count
        variance = jnp.sum(jnp.where(is_row, difference**2, 0)) / (rows.count - 1.0)
        return scores | {"errors": jnp.sqrt(variance / rows.count)}

    measured = measure(rows, models)
    return {name: np.asarray(values, float).tolist() for name, values in measured.items()}


def _is_larger_better(run: Run, measure: str) -> bool:
    """Return whether a larger score is better: a metric is taken to improve during the run."""
    if measure == "loss" or measure.endswith(("_loss", "_error")):
        return False
    if measure in LARGER_IS_BETTER:
        return True
    values: Any = run.history.get(measure, np.zeros(1))
    return bool(values[-1] > values[0])
