"""Softmax regression, the lower level of several problems: y = {"w": (p, q), "b": (q,)}."""

from typing import Any

import jax
import jax.numpy as jnp

from ..core.pytrees import Tree


def zeros(features: int, classes: int) -> Tree:
    """Return the start: equal probabilities for all classes."""
    return {"w": jnp.zeros((features, classes)), "b": jnp.zeros(classes)}


def cross_entropies(y: Tree, rows: Any) -> jax.Array:
    """Return the cross-entropy of each row."""
    scores = jax.nn.log_softmax(rows["a"] @ y["w"] + y["b"])
    return -jnp.take_along_axis(scores, rows["b"][:, None], 1)[:, 0]


def upper(x: Tree, y: Tree, rows: Any) -> jax.Array:
    """Return the mean cross-entropy."""
    return jnp.mean(cross_entropies(y, rows))


def weighted_loss(weights: jax.Array, y: Tree, rows: Any, regularizer: float) -> jax.Array:
    """Return mean_r weights_r cross-entropy(y; r) + regularizer ||y||^2."""
    square = jnp.sum(y["w"] ** 2) + jnp.sum(y["b"] ** 2)
    return jnp.mean(weights * cross_entropies(y, rows)) + regularizer * square


def accuracy(x: Tree, y: Tree, rows: Any) -> jax.Array:
    """Return the share of rows whose class has the largest probability."""
    return jnp.mean(jnp.argmax(rows["a"] @ y["w"] + y["b"], 1) == rows["b"])
