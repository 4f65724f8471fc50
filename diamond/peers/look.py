"""What a site can tell of its run alone: nobody there knows the mean of all x."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .. import cost, lower, tree
from ..cost import Cost
from ..deferred import spoken
from ..measure import Metrics
from ..problem import Objectives, Rows
from ..tree import Tree
from .agent import Agent, Progress


def look(agent: Agent, progress: Progress, heard: Mapping[int, Sequence[Any]]) -> dict[str, float]:
    """One evaluation, all exact and on all of the site's rows.

    `local_loss` is f_i(x_i, y_i), `lower_error` is ||y_i*(x_i) - y_i||^2; metrics are measured at
    (x_i, y_i); `samples` and so on are counted as in `diamond.Run`, of this agent alone, and
    `bytes` are those it sent. `disagreement` is the squared distance of the x that it told in the
    last round to the mean of those that it and its neighbours told.
    """
    problem, metrics = agent.problem, tuple(agent.problem.metrics.items())
    rows = problem.stack(problem.measured).of(0)
    found = _look(problem.objectives().of(0), rows, metrics, progress.state.x, progress.state.y)
    spent = zip(Cost._fields, cost.total(progress.spent))
    return {
        "round": progress.t,
        **{name: float(value) for name, value in found.items()},
        "disagreement": disagreement(agent, heard),
        **{name: float(count) for name, count in spent},
        "bytes": sent(agent, progress),
    }


@partial(jax.jit, static_argnums=2)
def _look(
    problem: Objectives, rows: Rows, metrics: Metrics, x: Tree, y: Tree
) -> dict[str, jax.Array]:
    with jax.default_matmul_precision("highest"):
        solved = lower.solve(problem, x, y)
        gap = tree.sub(solved.y, y)
        found = {
            "local_loss": problem.f(x, y, None),
            "lower_error": tree.dot(gap, gap),
            **{name: rows.mean(loss, x, y) for name, loss in metrics},
            "solver_error": solved.error,
        }
    return jax.tree.map(jnp.asarray, found)


def disagreement(agent: Agent, heard: Mapping[int, Sequence[Any]]) -> float:
    """||x_i - mean_j x_j||^2 over the agent and its neighbours, as told; 0 before round 0."""
    if not heard:
        return 0.0
    told = {j: jax.tree.leaves(agent.unpacked(arrays).x) for j, arrays in heard.items()}
    gaps = (
        np.asarray(leaf, float) - np.mean([np.asarray(one[k], float) for one in told.values()], 0)
        for k, leaf in enumerate(told[agent.number])
    )
    return float(sum((gap**2).sum() for gap in gaps))


def sent(agent: Agent, progress: Progress) -> int:
    """Bytes of all arrays that the agent has sent: in rounds, and to find numbers."""
    message = sum(leaf.size for leaf in agent.layout)
    talked = spoken(progress.found) * agent.network.diameter
    return len(agent.neighbours) * (progress.t * message + talked)
