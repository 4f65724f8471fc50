"""Personal adapters: a frozen network, a shared low-rank change x, and a change y_i per agent."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..core.pytrees import Tree
from ..core.validation import as_int
from ..problem import Problem


class PersonalLora(Problem):
    """A problem with its frozen network, and the changes of the network that made its rows."""

    base: list[np.ndarray]  # weights of the layers
    shared_change: Tree  # adapters of the true network: those of all agents
    personal_changes: list[Tree]  # and those of each agent


def personal_lora(
    agents: int = 6,
    widths: Sequence[int] = (32,),
    features: int = 8,
    outputs: int = 4,
    *,
    shared_rank: int = 2,
    rank: int = 1,
    rows: int = 40,
    change: float = 0.5,
    noise: float = 0.1,
    regularizer: float = 1e-3,
    seed: int = 0,
) -> PersonalLora:
    """Make a problem of shared and personal low-rank adapters of a frozen network.

        f_i = mean_r |net(W + A B + C_i D_i; a_r) - b_r|^2 / outputs over agent i's validation rows
        g_i = the same over its training rows + regularizer (|C_i|^2 + |D_i|^2)

    W, the weights of all layers, is frozen and part of no message. x = (A, B), shared, has
    `shared_rank`; y_i = (C_i, D_i), personal, has `rank` (Hu et al., 2022). B and D_i start at 0,
    so the run starts at the frozen network. The rows are made by a network with the same W and
    true adapters of these ranks; the lower level is not convex.

    Args:
        agents: number of agents.
        widths: units of the hidden layers.
        features, outputs: numbers in a_r and in b_r.
        shared_rank: rank of the shared adapters, one per layer.
        rank: rank of the personal adapters.
        rows: training rows per agent; four times as many for validation and for the metrics.
        change: size of the true changes relative to W.
        noise: deviation of the noise of b.
        regularizer: weight of |y_i|^2.
        seed: seed of the network and the rows.

    Returns:
        The problem; its metrics are `test_loss` and `gain`: the share of the frozen network's
        squared error, above the noise, that the adapters remove.
    """
    counts = {"agents": agents, "features": features, "outputs": outputs, "rows": rows}
    for name, count in (counts | {"shared_rank": shared_rank, "rank": rank}).items():
        as_int(name, count, 1)
    for width in widths:
        as_int("widths", width, 1)
    random = np.random.default_rng(as_int("seed", seed, 0))
    sizes = [features, *widths, outputs]
    shapes = list(pairwise(sizes))
    base = [_normal(random, (a, b), a**-0.5) for a, b in shapes]

    def true_change(r: int) -> Tree:
        return [
            {"a": _normal(random, (a, r), a**-0.5), "b": _normal(random, (r, b), change * r**-0.5)}
            for a, b in shapes
        ]

    shared_change = true_change(shared_rank)
    personal_changes = [true_change(rank) for _ in range(agents)]

    def draw(agent: int, count: int) -> Tree:
        a = _normal(random, (count, features), 1.0)
        truth = _predict(base, (shared_change, personal_changes[agent]), jnp.asarray(a))
        return {"a": a, "b": np.asarray(truth) + _normal(random, (count, outputs), noise)}

    parts = [[draw(agent, n) for agent in range(agents)] for n in (rows, 4 * rows, 4 * rows)]

    def init(key: jax.Array) -> tuple[Tree, Tree]:
        return tuple(
            _start(k, shapes, r) for k, r in zip(jax.random.split(key), (shared_rank, rank))
        )

    def upper(x: Tree, y: Tree, rows: Any) -> jax.Array:
        return jnp.mean((_predict(base, (x, y), rows["a"]) - rows["b"]) ** 2)

    def lower(x: Tree, y: Tree, rows: Any) -> jax.Array:
        square = sum(jnp.sum(leaf * leaf) for leaf in jax.tree.leaves(y))
        return upper(x, y, rows) + regularizer * square

    frozen_error = np.mean(
        [np.mean((np.asarray(_predict(base, (), r["a"])) - r["b"]) ** 2) for r in parts[2]]
    )

    def gain(x: Tree, y: Tree, rows: Any) -> jax.Array:
        return (frozen_error - upper(x, y, rows)) / (frozen_error - noise**2)

    metrics = {"test_loss": upper, "gain": gain}
    problem = PersonalLora(
        upper,
        lower,
        init,
        parts[0],
        parts[1],
        parts[2],
        metrics=metrics,
        convex=False,
        predict=lambda x, y, rows: _predict(base, (x, y), jnp.asarray(rows["a"])),
    )
    problem.base, problem.shared_change = base, shared_change
    problem.personal_changes = personal_changes
    return problem


def _normal(random: np.random.Generator, shape: tuple[int, ...], deviation: float) -> np.ndarray:
    return (deviation * random.normal(size=shape)).astype(np.float32)


def _start(key: jax.Array, shapes: Sequence[tuple[int, int]], rank: int) -> Tree:
    """Return adapters that change nothing: one factor is 0."""
    keys = jax.random.split(key, len(shapes))
    return [
        {"a": a**-0.5 * jax.random.normal(k, (a, rank)), "b": jnp.zeros((rank, b))}
        for k, (a, b) in zip(keys, shapes)
    ]


def _predict(base: Sequence[Any], adapters: Sequence[Tree], a: jax.Array) -> jax.Array:
    """Return the outputs of the network with the weights W + A B of each of `adapters`."""
    for layer, weights in enumerate(base):
        hidden = a @ weights
        for change in adapters:
            hidden = hidden + a @ change[layer]["a"] @ change[layer]["b"]
        a = jnp.tanh(hidden) if layer < len(base) - 1 else hidden
    return a
