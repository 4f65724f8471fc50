"""L_g of eq. (5): a bound on the eigenvalues of every sampled g_yy, estimated from the data."""

import jax
import jax.numpy as jnp

from .. import sampling, tree
from ..cost import Cost
from ..deferred import Deferred
from ..linear import power_iteration
from ..problem import Objectives, Problem
from ..tree import Tree
from .implicit import hessian

BATCHES = 8  # Hessians looked at, per agent
STEPS = 20  # of power iteration on each
SAFETY = 1.5  # batches not looked at may be worse, and y moves on


def lipschitz(
    problem: Problem, x: Tree, y: Tree, batch: int = 64, seed: int = 0
) -> tuple[float, Cost]:
    """1.5 times the largest |eigenvalue| of g_yy over 8 mini-batches an agent, all at (x, y).

    The largest over the agents, which max-consensus gives them in as many rounds as the network's
    diameter. An estimate, not a bound: it knows this point and these batches. Also returns what it
    cost an agent.
    """
    largest = _largest(problem.objectives(batch), x, y, sampling.key(seed))
    rows = BATCHES * batch
    return SAFETY * float(largest), Cost(samples=rows, hvps=STEPS * rows)


@jax.jit
def _largest(objectives: Objectives, x: Tree, y: Tree, key: jax.Array) -> jax.Array:
    agents = objectives.train.count.shape[0]

    def of_agent(problem: Objectives, key: jax.Array) -> jax.Array:
        def of_batch(key: jax.Array) -> jax.Array:
            where = jax.random.randint(key, (), 0, problem.train.count)
            start = tree.normal(jax.random.fold_in(key, 1), y)
            return power_iteration(hessian(problem, (x, y), where), start, STEPS)

        return jnp.max(jax.lax.map(of_batch, jax.random.split(key, BATCHES)))

    return jnp.max(jax.vmap(of_agent)(objectives, jax.random.split(key, agents)))


def _from_start(problem: Problem, batch: int, seed: int) -> tuple[float, Cost]:
    return lipschitz(problem, *problem.start(seed), batch, seed)


estimated = Deferred("lipschitz", _from_start)  # stands for L until the run begins
