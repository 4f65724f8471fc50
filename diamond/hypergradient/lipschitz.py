"""L_g of eq. (5): a bound on the eigenvalues of every sampled g_yy, estimated from the data."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..core import sampling, tree
from ..core.cost import Cost
from ..core.linear_solvers import power_iteration
from ..core.tree import Tree
from ..machine.compiler import briefly
from ..numbers.open_numbers import Deferred, Found, Measured, Own, Setting, agent_numbers
from ..problem import Objectives, Problem
from .implicit import hessian

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
    point, agents = jax.tree.map(everywhere, (x, y)), jnp.arange(problem.agents)
    found = curvature(problem.objectives(batch), *point, sampling.key(seed), agents, BATCHES)
    return SAFETY * float(found.max()), _cost(batch)


def _cost(batch: int) -> Cost:
    rows = BATCHES * batch
    return Cost(samples=rows, hvps=STEPS * rows)


@briefly("batches")
def curvature(
    objectives: Objectives, x: Tree, y: Tree, key: jax.Array, numbers: jax.Array, batches: int = 2
) -> jax.Array:
    """The largest |eigenvalue| of g_yy over `batches` mini-batches of each agent, at its (x, y).

    `numbers`: which agents of the network these are.
    """

    def of_agent(agent: jax.Array, number: jax.Array, x: Tree, y: Tree) -> jax.Array:
        problem = objectives.of(agent)

        def of_batch(key: jax.Array) -> jax.Array:
            where = problem.train.somewhere(key)
            start = tree.normal(jax.random.fold_in(key, 1), y)
            return power_iteration(hessian(problem, (x, y), where), start, STEPS)

        keys = jax.random.split(jax.random.fold_in(key, number), batches)
        return jnp.max(jax.lax.map(of_batch, keys))

    agents = jnp.arange(objectives.train.count.shape[0])
    return jax.vmap(of_agent)(agents, numbers, x, y)


def bends(setting: Setting, point: tuple[Tree, Tree]) -> np.ndarray:
    """`curvature` over 8 mini-batches of each agent to be measured here, one row an agent."""
    key = sampling.key(setting.seed)
    look = lambda rows, at, agents: curvature(rows(setting.batch), *at, key, agents, BATCHES)
    return np.asarray(setting.each(look, point))[:, None]


def curvatures(setting: Setting) -> np.ndarray:
    """Of each agent, the largest |eigenvalue| of g_yy over 8 mini-batches, where it stands.

    At least a third of what was found before: eight batches may miss the one that bends most.
    """

    def compute(setting: Setting) -> Found:
        def measure() -> Measured:
            return bends(setting, setting.point), _cost(setting.batch)

        found, cost = setting.talk.alone("curvature", measure)
        return Found(np.maximum(found[:, 0], setting.before("curvature", 0.0) / 3), cost)

    return setting.once("curvature", compute)


def _bound(setting: Setting) -> Found:
    return Found(SAFETY * curvatures(setting))


estimated = Deferred("lipschitz", _bound)  # stands for L until the run begins


def hardest(algorithm: Any) -> Any:
    """The algorithm as that agent has it whose lower level is the most curved."""
    leaves = jax.tree_util.tree_leaves_with_path(algorithm, is_leaf=lambda a: isinstance(a, Own))
    for path, leaf in leaves:
        if isinstance(leaf, Own):
            return agent_numbers(
                algorithm, int((np.argmax if _is_chain(path) else np.argmin)(leaf.values))
            )
    return algorithm


def in_use(algorithm: object) -> float | None:
    """The L that `algorithm` divides by, if it does; the largest, where each agent has its own."""
    return None if (each := bounds(algorithm)) is None else float(np.max(each))


def bounds(algorithm: object) -> np.ndarray | None:
    """The L that `algorithm` divides by, if it does; of each agent, where each has its own."""
    leaves = jax.tree_util.tree_leaves_with_path(algorithm)
    return next((np.asarray(leaf) for path, leaf in leaves if _is_chain(path)), None)


def raised(algorithm: Any, factor: float) -> Any:
    """An algorithm whose L, if it has one, is `factor` times as large."""

    def times(path: Any, leaf: Any) -> Any:
        return leaf * factor if _is_chain(path) else leaf

    return jax.tree_util.tree_map_with_path(times, algorithm)


def _is_chain(path: Any) -> bool:
    return any(getattr(key, "name", "") == "lipschitz" for key in path)
