"""The two levels of a table: what all sites learn together, and the model of each site."""

import warnings
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..core.pytrees import Tree
from ..engine.solve_problem import solve
from ..hardware.compiler import compile_fast
from ..metrics.lower_solution import solve_lower_level
from ..network import complete
from ..problem import Objectives
from ..records.run import Run
from .site_rows import TableProblem, padded_count, stack_all

LARGEST_BLOCK = 1024  # rows
Loss = Callable[[Tree, Tree, Any], jax.Array]


def learn_shared(
    upper: Loss,
    lower: Loss,
    x: np.ndarray,
    y: Tree,
    train: list[Tree],
    valid: list[Tree],
    accuracy: Any,
) -> Run:
    """Return the run that learns what all sites share.

    Args:
        upper, lower: losses of (x, y, rows), objects that are equal for equal tasks.
        x, y: start.
        train, valid: rows of each site.
        accuracy: accuracy of `diamond.solve`.

    Returns:
        The run; the mean over the agents of its x is the answer.
    """
    problem = TableProblem(upper, lower, lambda key: (jnp.asarray(x), y), train, valid)
    most_rows = max(problem.counts(part).max() for part in ("train", "valid"))
    block = min(padded_count(int(most_rows)), LARGEST_BLOCK)  # one block needs no loop over blocks
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "batch = ", RuntimeWarning)  # repeated rows do not count
        return solve(
            problem,
            complete(problem.agents),
            accuracy=accuracy,
            batch=block,
            measure="loss",
            progress=False,
        )


def fit_sites(upper: Loss, lower: Loss, x: Any, y: Tree, rows: list[Tree]) -> Tree:
    """Return y_i*(x) on these rows of all sites, along a first axis; y is the start."""
    objectives = Objectives(stacked := stack_all(rows), stacked, upper, lower)
    return jax.tree.map(np.asarray, _solve_sites(objectives, x, y))


@compile_fast()
def _solve_sites(objectives: Objectives, x: Any, y: Tree) -> Tree:
    """Solve the lower levels of all sites by Newton's method."""
    with jax.default_matmul_precision("highest"):
        return jax.vmap(lambda site: solve_lower_level(site, x, y).y)(objectives)
