"""The ends of the spectrum of 1/m sum_i g_yy, which no agent knows alone.

By Lanczos over the network: each product is the mean of what all agents make of one vector, and
the mean is found exactly, by everyone telling everyone's vector on. STEPS of them.
"""

import jax
import numpy as np
from jax.flatten_util import ravel_pytree

from ..core import sampling, tree
from ..core.cost import Cost
from ..core.tree import Tree
from ..machine.compiler import briefly
from ..numbers.open_numbers import Found, Measure, Measured, Setting
from ..problem import Objectives
from .conditioning import block
from .implicit import hessian

STEPS = 8
MOST = 10**6  # numbers that everyone may have to tell for a product


def ends(setting: Setting) -> tuple[float, float] | None:
    """mu and L of the pooled g where the agents stand, on a block of rows of each.

    None where telling everyone's vectors would take too much.
    """

    def compute(setting: Setting) -> Found:
        x, y = setting.point
        first, unravel = ravel_pytree(jax.tree.map(lambda a: a[0], y))
        m, size = setting.agents, first.size
        start = tree.normal(sampling.key(setting.seed), jax.tree.map(lambda a: a[0], y))
        vector = np.asarray(ravel_pytree(start)[0], float)
        basis, diagonal, beside = [vector / np.linalg.norm(vector)], [], []
        spent, told = Cost(), 0
        for k in range(min(STEPS, size)):

            def measure() -> Measured:
                w = unravel(jax.numpy.asarray(basis[-1], first.dtype))
                look = lambda rows, point, _: _products(block(rows(1)), *point, w)
                found, counts = setting.each(look, (x, y))
                rows = np.asarray(counts, np.int64)
                return np.asarray(found, float), Cost(samples=rows * (k == 0), hvps=rows)

            product, cost, numbers = _mean(setting, f"pooled{k}", measure, m)
            spent, told = tree.add(spent, cost), told + numbers
            diagonal.append(product @ basis[-1])
            for _ in range(2):
                for q in basis:
                    product = product - (q @ product) * q
            beyond = np.linalg.norm(product)
            if beyond <= 1e-6 * abs(diagonal[0]) or k + 1 == min(STEPS, size):
                break
            beside.append(beyond)
            basis.append(product / beyond)
        side = np.diag(beside, 1)
        values = np.linalg.eigvalsh(np.diag(diagonal) + side + side.T)
        found = np.array([values[0], values[-1]])
        return Found(found, spent, agreed=told, talks=len(diagonal))

    y = setting.point[1]
    numbers = sum(leaf[0].size for leaf in jax.tree.leaves(y))
    if setting.agents * numbers > MOST:
        return None
    mu, largest = setting.once("_pooled", compute)
    return float(mu), float(largest)


def _mean(setting: Setting, name: str, measure: Measure, m: int) -> tuple[np.ndarray, Cost, int]:
    """The mean over the agents of a vector of each, what it cost, and how many numbers were told.

    A peer has one place for each agent's vector, twice, for what is above 0 and what is below:
    the largest in each place is then the vector.
    """
    if setting.agent is None:
        values, cost = setting.talk.alone(name, measure)
        return values.mean(0), cost, 2 * m * values.shape[1]

    def placed() -> Measured:
        (own,), cost = measure()
        found = np.zeros((2, m, own.size))
        found[:, setting.agent] = np.maximum(own, 0), np.maximum(-own, 0)
        return found.reshape(1, -1), cost

    found, cost = setting.talk.largest(name, placed)
    above, below = found.reshape(2, m, -1)
    return (above - below).mean(0), cost, found.size


@briefly()
def _products(few: Objectives, x: Tree, y: Tree, w: Tree) -> tuple[jax.Array, jax.Array]:
    """g_yy w of each agent, as vectors, and how many rows it is of."""

    def alone(problem: Objectives, x: Tree, y: Tree) -> jax.Array:
        return ravel_pytree(hessian(problem, (x, y), None)(w))[0]

    return jax.vmap(alone)(few, x, y), few.train.count
