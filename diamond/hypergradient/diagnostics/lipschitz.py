"""Estimate of L_g of eq. (5): a bound on the eigenvalues of every sampled g_yy."""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ...core import host_random, pytrees, sampling
from ...core.cost_counter import Cost
from ...core.linear_solvers import power_iteration
from ...core.pytrees import Tree
from ...hardware.compiler import compile_fast
from ...problem import Objectives, Problem
from ...schedules.deferred import ResolutionContext
from ..implicit_estimator import hessian

BATCHES = 8  # sampled Hessians per agent
POWER_STEPS = 20  # steps of power iteration on each
SAFETY = 3.0  # margin, because curvature grows as x and y move


def lipschitz(
    problem: Problem, x: Tree, y: Tree, batch: int = 64, seed: int = 0
) -> tuple[float, Cost]:
    """Return three times the largest |eigenvalue| of g_yy over 8 mini-batches per agent.

    All batches are evaluated at (x, y), and the maximum is over the agents (in a run, each agent
    has its own). This is an estimate, not a bound. A chain with a larger L than needed is more
    biased, (1 - mu / L)^K; a chain with less than half of L_g diverges. Also returns the cost per
    agent.
    """
    to_agents = lambda a: jnp.broadcast_to(a, (problem.agents, *a.shape))
    point, objectives = jax.tree.map(to_agents, (x, y)), problem.objectives(batch)
    curvatures = curvature(
        objectives,
        *point,
        probes(sampling.key(seed), np.arange(problem.agents), objectives.train.count, y, BATCHES),
    )
    return SAFETY * float(curvatures.max()), _cost(batch)


def _cost(batch: int) -> Cost:
    rows = BATCHES * batch
    return Cost(samples=rows, hvps=POWER_STEPS * rows)


class Probes(NamedTuple):
    """Mini-batches of every agent on which g_yy is estimated."""

    keys: Any  # (agents, batches, 2): words of the key of each batch
    first: Any  # (agents, batches): first row of the batch, if rows are stored
    starts: Any  # (agents, batches, leaves of y, 2): keys of start vectors


def probes(key: jax.Array, agents: Any, counts: Any, y: Tree, batches: int) -> Probes:
    """Draw the probes of the `agents` with `counts` rows; `y` of one agent or of all.

    They are drawn on the host: compiling the draws would take longer than the rest of the program.
    """
    agent_keys = host_random.fold_in(host_random.words(key), np.asarray(agents))
    keys = host_random.split(agent_keys, batches)
    starts = host_random.split(host_random.fold_in(keys, np.uint32(1)), len(jax.tree.leaves(y)))
    first_rows = host_random.randint_below(keys, np.asarray(counts)[:, None])
    return Probes(np.stack(keys, -1), first_rows, np.stack(starts, -1))


@compile_fast()
def curvature(objectives: Objectives, x: Tree, y: Tree, probes: Probes) -> jax.Array:
    """Estimate the largest |eigenvalue| of g_yy on each agent's mini-batches at its (x, y)."""
    typed = partial(jax.random.wrap_key_data, impl="threefry2x32")

    def of_agent(agent: jax.Array, probes: Probes, x: Tree, y: Tree) -> jax.Array:
        problem = objectives.for_agent(agent)

        def of_batch(probe: Probes) -> jax.Array:
            where = typed(probe.keys) if problem.train.stored is None else probe.first
            start = pytrees.normal_by(typed(probe.starts), y)
            return power_iteration(hessian(problem, (x, y), where), start, POWER_STEPS)

        return jnp.max(jax.lax.map(of_batch, probes))

    agents = jnp.arange(objectives.train.count.shape[0])
    return jax.vmap(of_agent)(agents, probes, x, y)


def batch_curvatures(context: ResolutionContext, point: tuple[Tree, Tree]) -> np.ndarray:
    """Estimate `curvature` on 8 mini-batches of each agent measured here, one row per agent."""
    key = sampling.key(context.seed)

    def measure(rows: Any, points: tuple[Tree, Tree], agents: Any) -> jax.Array:
        objectives = rows(context.batch)
        return curvature(
            objectives, *points, probes(key, agents, objectives.train.count, points[1], BATCHES)
        )

    return np.asarray(context.map_agents(measure, point))[:, None]


def given_lipschitz(algorithm: object) -> float | None:
    """Return the L that the user gave to `algorithm`, or None."""
    leaves = jax.tree_util.tree_leaves_with_path(algorithm)
    return next((float(leaf) for path, leaf in leaves if _is_lipschitz(path)), None)


def with_scaled_lipschitz(algorithm: Any, factor: float) -> Any:
    """Return the algorithm with its L, if any, multiplied by `factor`."""

    def scale(path: Any, leaf: Any) -> Any:
        return leaf * factor if _is_lipschitz(path) else leaf

    return jax.tree_util.tree_map_with_path(scale, algorithm)


def _is_lipschitz(path: Any) -> bool:
    return any(getattr(key, "name", "") == "lipschitz" for key in path)
