"""A change of members: what agents that stay keep, and where agents that join begin.

An agent that stays keeps its state, but its trackers restart at its last directions, u_i = p_i. An
agent that joins begins at the mean x of those of its neighbours that stay, with its own initial y
and everything else as before round 0: u_i = p_i = 0. So the trackers of the new members satisfy

    sum_i u_i = sum_i p_i

at the change, whoever left with whatever share of the old sum, and in every round after it, because
the new M is doubly stochastic and each round adds p_t - p_{t-1} at every agent. Corrections that
sum to 0 over the agents (EXTRA, exact diffusion) restart at 0. Numbers left to the run are
estimated again at the change, by the new members.
"""

from collections.abc import Sequence

import jax
import numpy as np

from ..core.pytrees import Tree
from ..problem import Problem
from ..schedules.deferred import replace_deferred, specialize
from .round_interface import Method


def mean_point(points: Sequence[Sequence[np.ndarray]], like: Tree) -> Tree:
    """Return the mean of points, given by the arrays of x; `like`, the usual start, if none."""
    if not points:
        return like
    means = [np.mean(leaf, axis=0, dtype=leaf[0].dtype) for leaf in zip(*points)]
    return jax.tree.unflatten(jax.tree.structure(like), [jax.numpy.asarray(leaf) for leaf in means])


def check_member_changes(problem: Problem, algorithm: Method) -> None:
    """Refuse problems and methods that cannot go on with other members."""
    if problem.streams:
        raise ValueError(
            "rows of a stream are drawn for fixed members: take stored rows, or constant members"
        )
    method = specialize(algorithm, problem)
    if method.learns_alpha:
        raise ValueError(
            "this method learns alpha from all agents, which has no meaning after members change: "
            "give alpha"
        )
    outline = replace_deferred(method, lambda open: 1)
    restart = lambda x, y: outline.restart_trackers(outline.init(x, y))
    if jax.eval_shape(restart, *problem.start(0)) is None:
        raise ValueError(
            f"{type(algorithm).__name__} keeps a state that has no meaning after members change: "
            f"take a method of gossip or gradient tracking, such as diamond.diamond(alpha=...)"
        )
