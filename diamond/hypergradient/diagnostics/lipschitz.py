"""L_g of eq. (5): a bound on the eigenvalues of every sampled g_yy, estimated from the data."""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ...core import host_random, sampling, tree
from ...core.cost import Cost
from ...core.linear_solvers import power_iteration
from ...core.tree import Tree
from ...machine.compiler import briefly
from ...numbers.open_numbers import Setting
from ...problem import Objectives, Problem
from ..implicit import hessian

BATCHES = 8  # Hessians looked at, per agent
STEPS = 20  # of power iteration on each
SAFETY = 3.0  # x and y move on: learned features bend more than those of the start


def lipschitz(
    problem: Problem, x: Tree, y: Tree, batch: int = 64, seed: int = 0
) -> tuple[float, Cost]:
    """Three times the largest |eigenvalue| of g_yy over 8 mini-batches an agent, all at (x, y).

    The largest over the agents; in a run, each has its own. An estimate, not a bound: it knows this
    point and these batches. A chain on a larger L than needed is more biased, (1 - mu / L)^K; one
    on less than half of L_g grows without bound. Also returns what it cost an agent.
    """
    everywhere = lambda a: jnp.broadcast_to(a, (problem.agents, *a.shape))
    point, objectives = jax.tree.map(everywhere, (x, y)), problem.objectives(batch)
    about = sampling.key(seed), np.arange(problem.agents), objectives.train.count, y, BATCHES
    found = curvature(objectives, *point, probes(*about))
    return SAFETY * float(found.max()), _cost(batch)


def _cost(batch: int) -> Cost:
    rows = BATCHES * batch
    return Cost(samples=rows, hvps=STEPS * rows)


class Probes(NamedTuple):
    """The mini-batches that g_yy is looked at on, of every agent."""

    keys: Any  # (agents, batches, 2): words of the key that each is drawn by
    first: Any  # (agents, batches): its first row, of rows that are stored
    starts: Any  # (agents, batches, leaves of y, 2): of the keys that the iteration begins by


def probes(key: jax.Array, numbers: Any, counts: Any, y: Tree, batches: int) -> Probes:
    """Those of the agents `numbers`, with `counts` rows. `y`: of one agent or of all.

    Drawn here: in the program, to compile how they are drawn takes longer than all the rest of it.
    """
    own = host_random.fold_in(host_random.words(key), np.asarray(numbers))
    keys = host_random.split(own, batches)
    starts = host_random.split(host_random.fold_in(keys, np.uint32(1)), len(jax.tree.leaves(y)))
    first = host_random.below(keys, np.asarray(counts)[:, None])
    return Probes(np.stack(keys, -1), first, np.stack(starts, -1))


@briefly()
def curvature(objectives: Objectives, x: Tree, y: Tree, probes: Probes) -> jax.Array:
    """The largest |eigenvalue| of g_yy on the mini-batches of each agent, at its (x, y)."""
    typed = partial(jax.random.wrap_key_data, impl="threefry2x32")

    def of_agent(agent: jax.Array, probes: Probes, x: Tree, y: Tree) -> jax.Array:
        problem = objectives.of(agent)

        def of_batch(one: Probes) -> jax.Array:
            where = typed(one.keys) if problem.train.stored is None else one.first
            start = tree.normal_by(typed(one.starts), y)
            return power_iteration(hessian(problem, (x, y), where), start, STEPS)

        return jnp.max(jax.lax.map(of_batch, probes))

    agents = jnp.arange(objectives.train.count.shape[0])
    return jax.vmap(of_agent)(agents, probes, x, y)


def bends(setting: Setting, point: tuple[Tree, Tree]) -> np.ndarray:
    """`curvature` over 8 mini-batches of each agent to be measured here, one row an agent."""
    key = sampling.key(setting.seed)

    def look(rows: Any, at: tuple[Tree, Tree], agents: Any) -> jax.Array:
        objectives = rows(setting.batch)
        about = key, agents, objectives.train.count, at[1], BATCHES
        return curvature(objectives, *at, probes(*about))

    return np.asarray(setting.each(look, point))[:, None]


def in_use(algorithm: object) -> float | None:
    """The L that `algorithm` divides by, if it does and its user gave it."""
    leaves = jax.tree_util.tree_leaves_with_path(algorithm)
    return next((float(leaf) for path, leaf in leaves if _is_chain(path)), None)


def raised(algorithm: Any, factor: float) -> Any:
    """An algorithm whose L, if it has one, is `factor` times as large."""

    def times(path: Any, leaf: Any) -> Any:
        return leaf * factor if _is_chain(path) else leaf

    return jax.tree_util.tree_map_with_path(times, algorithm)


def _is_chain(path: Any) -> bool:
    return any(getattr(key, "name", "") == "lipschitz" for key in path)
