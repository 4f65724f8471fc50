"""A change of members: what agents that stay keep, and where agents that join begin.

An agent that stays keeps its state, but its trackers restart at its last directions, u_i = p_i. An
agent that joins begins at the mean x of those of its neighbours that stay, with its own initial y
and everything else as before round 0: u_i = p_i = 0. So the trackers of the new members satisfy

    sum_i u_i = sum_i p_i

at the change, whoever left with whatever share of the old sum, and in every round after it, because
the new M is doubly stochastic and each round adds p_t - p_{t-1} at every agent. Corrections that
sum to 0 over the agents (EXTRA, exact diffusion) restart at 0. Numbers left to the run are
estimated again at the change, by the new members. A method that learns its steps of x learns them
again from the present x, and quasi-Newton steps begin again there, because other members have
another objective. A run that diverges does not roll back behind the change.

Agents of a method with exact means have one x, and one y if the lower level is common. There all
members begin at the exact mean over those that stay, so that they have the same bits. With robust
mixing an agent that joins begins at the median of its neighbours' x, and with masked sums, where no
x is sent in the clear, at its own initial x.
"""

from collections.abc import Sequence

import jax
import numpy as np

from ..core.exclusions import check_combination
from ..core.pytrees import Tree
from ..network import Network
from ..problem import Problem
from ..schedules.deferred import deferred_names, replace_deferred, specialize
from .round_interface import Method


def mean_point(points: Sequence[Sequence[np.ndarray]], like: Tree) -> Tree:
    """Return the mean of points, given by the arrays of x; `like`, the usual start, if none."""
    if not points:
        return like
    means = [np.mean(leaf, axis=0, dtype=leaf[0].dtype) for leaf in zip(*points)]
    return jax.tree.unflatten(jax.tree.structure(like), [jax.numpy.asarray(leaf) for leaf in means])


def start_between(points: Sequence[Sequence[np.ndarray]], like: Tree, network: Network) -> Tree:
    """Return x of an agent that joins: the mean of these points, or with robust mixing the median.

    The median lies between the points of honest neighbours if these are the majority.
    """
    if network.defense is None or not points:
        return mean_point(points, like)
    medians = [jax.numpy.asarray(np.median(leaf, axis=0)) for leaf in zip(*points)]
    medians = [leaf.astype(part.dtype) for leaf, part in zip(medians, points[0])]
    return jax.tree.unflatten(jax.tree.structure(like), medians)


def mean_over_staying(means: Sequence[np.ndarray], members: int, staying: int) -> list[np.ndarray]:
    """Return the mean over the agents that stay, of the one over all, where others counted as 0."""
    if staying == members:
        return [*means]
    scale = lambda mean: mean * mean.dtype.type(members) / mean.dtype.type(staying)
    return [np.asarray(scale(np.asarray(mean))) for mean in means]


def common_point(problem: Problem, x: Tree, y: Tree) -> Tree:
    """Return what all agents of a method with exact means have in common."""
    return (x, y) if problem.lower_level == "common" else (x,)


def check_member_changes(problem: Problem, algorithm: Method, missing: str = "wait") -> None:
    """Refuse problems and methods that cannot go on with other members."""
    method, name = specialize(algorithm, problem), type(algorithm).__name__
    used = {"changing members": True, "streams": problem.streams}
    used |= {"changing members with missing='continue'": missing == "continue"}
    used |= {"open numbers": bool(deferred_names(method))}
    check_combination(used, name, "sites")
    outline = replace_deferred(method, lambda open: 1)
    restart = lambda x, y: outline.restart_trackers(outline.init(x, y))
    is_lost = jax.eval_shape(restart, *problem.start(0)) is None
    check_combination({"changing members": True, "a state without restart": is_lost}, name)
