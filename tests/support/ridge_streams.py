"""Streams that several tests share, of which all is known: ridge regression on normal rows."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np

import diamond

AGENTS, SIZE, NOISE = 4, 2, 0.5
WEIGHTS = np.random.default_rng(5).normal(size=(AGENTS, SIZE))


def draw(key, agent):
    """a standard normal, b = a' w_agent + noise."""
    one, two = jax.random.split(key)
    a = jax.random.normal(one, (SIZE,))
    return {"a": a, "b": a @ jnp.asarray(WEIGHTS)[agent] + NOISE * jax.random.normal(two)}


def loss(x, y, rows):
    return jnp.mean((rows["a"] @ y - rows["b"]) ** 2)


def penalized_loss(x, y, rows):
    return loss(x, y, rows) + jnp.sum(jnp.exp(x) * y**2)


def ridge(train, valid, lower_level="personal", **options):
    init = lambda key: (jnp.zeros(SIZE), jnp.zeros(SIZE))
    problem_options = {"metrics": {"error": loss}, "lower_level": lower_level} | options
    return diamond.Problem(loss, penalized_loss, init, train, valid, **problem_options)


@cache
def stream_problem(lower_level="personal", evaluation=50, large=None, agents=AGENTS):
    """The problem whose rows are drawn."""
    rows = diamond.stream(draw, agents, evaluation=evaluation, large=large)
    return ridge(rows, rows, lower_level)


def exact_lower_solution(x, weights):
    """y*(x) on all rows there could be."""
    return weights / (1 + np.exp(x))


def upper_loss(x, lower_level):
    """l(x) on all rows there could be."""
    pooled = np.broadcast_to(WEIGHTS.mean(0), WEIGHTS.shape)
    y = exact_lower_solution(x, WEIGHTS if lower_level == "personal" else pooled)
    return ((y - WEIGHTS) ** 2).sum(1).mean() + NOISE**2
