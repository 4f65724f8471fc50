"""Variance of mini-batch gradients: sigma_f and sigma_g of Assumption 4."""

from functools import partial

import jax
import jax.numpy as jnp

from ..core import pytrees
from ..core.cost_counter import Cost
from ..core.pytrees import Tree
from ..core.sampling import AGENT_AXES, Sampling, draw
from ..hardware.compiler import FAST_COMPILE_OPTIONS, MEASURE_OPTIONS, compile_program
from ..hypergradient.implicit import ImplicitHypergradient
from ..problem import Objectives

SECOND_SAMPLE = 1 << 20  # round offset of the second sample of a pair


@compile_program(
    "pairs", "batch", "sampling", options=MEASURE_OPTIONS, small_options=FAST_COMPILE_OPTIONS
)
def estimate_sigmas(
    chain: ImplicitHypergradient,
    objectives: Objectives,
    points: tuple[Tree, Tree],
    key: jax.Array,
    pairs: int,
    batch: int,
    sampling: Sampling,
) -> tuple[dict[str, tuple[jax.Array, jax.Array]], Cost]:
    """Return (sigma, its standard error) per agent, from gradients on `pairs` pairs of samples.

    Each agent is at its own x and y: `points` have the agents first. Half of ||a - b||^2 of two
    independent gradients has the mean E ||a - E a||^2 = sigma^2, so the mean gradient is not
    needed. sigma_f is that of the hypergradient by `chain`, sigma_g of g_y, sigma_df of (f_x, f_y).
    Also returns the cost of a pair, the mean over pairs and agents.
    """
    agents = jnp.arange(objectives.train.count.shape[0])
    rows = objectives.train.stored, objectives.valid.stored

    def gradients(t: jax.Array) -> tuple[dict[str, Tree], Cost]:
        drawn = partial(draw, hessian_batches=chain.hessian_batches, batch=batch, sampling=sampling)
        sample = jax.vmap(drawn, (None, None, 0, 0), AGENT_AXES)(key, t, agents, rows)

        def agent_gradients(
            problem: Objectives, sample: Tree, point: tuple[Tree, Tree]
        ) -> tuple[dict[str, Tree], Cost]:
            (h,), cost = chain(problem, [point], sample)
            g_y = jax.grad(problem.g, 1)(*point, sample.lower)
            df = jax.grad(problem.f, (0, 1))(*point, sample.upper)
            return {"sigma_f": h, "sigma_g": g_y, "sigma_df": df}, cost

        return jax.vmap(agent_gradients, (0, AGENT_AXES, 0))(objectives, sample, points)

    def half_squared_differences(t: jax.Array) -> tuple[dict[str, jax.Array], Cost]:
        (first, spent), (second, more) = gradients(t), gradients(t + SECOND_SAMPLE)
        difference = pytrees.sub(first, second)
        half = {k: jax.vmap(lambda a: pytrees.dot(a, a))(a) / 2 for k, a in difference.items()}
        return half, jax.tree.map(lambda a, b: jnp.mean(1.0 * (a + b)), spent, more)

    squares, spent = jax.lax.map(half_squared_differences, jnp.arange(pairs))
    moments = {k: (a.mean(0), a.std(0, ddof=1) / jnp.sqrt(pairs)) for k, a in squares.items()}
    tiny = jnp.finfo(jax.tree.leaves(points)[0].dtype).tiny
    sigmas = {
        k: (jnp.sqrt(mean), error / (2 * jnp.sqrt(jnp.maximum(mean, tiny))))
        for k, (mean, error) in moments.items()
    }
    of_g_y = Cost(samples=2 * batch, gradients=2 * batch)  # the chain already counts (f_x, f_y)
    return sigmas, pytrees.add(Cost(*(c.mean() for c in spent)), of_g_y)
