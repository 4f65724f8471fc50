"""Meta-learning (the paper's first experiment): shared hidden layers x, a head y_i per agent."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..core.tree import Tree
from ..core.whole_numbers import whole
from ..problem import Problem
from ._labels import labelled

ACTIVATIONS = {
    "tanh": jnp.tanh,
    "relu": jax.nn.relu,
    "gelu": jax.nn.gelu,
    "softplus": jax.nn.softplus,
}


def meta_learning(
    train: Sequence[Tree],
    valid: Sequence[Tree],
    test: Sequence[Tree] | None = None,
    classes: int = 10,
    widths: Sequence[int] = (20, 20),
    activation: str = "tanh",
    regularizer: float = 1.0,
) -> Problem:
    """f_i = cross-entropy on validation rows, g_i = cross-entropy + regularizer/2 ||y_i||^2.

    Rows are {"a": features (n, p), "b": labels (n,)}. x holds the hidden layers of `widths` units,
    y_i the weights and biases of agent i's last layer. The metric is the accuracy on `test`.
    """
    if activation not in ACTIVATIONS:
        raise ValueError(f"no activation {activation!r}; there are {', '.join(ACTIVATIONS)}")
    act = ACTIVATIONS[activation]
    for width in widths:
        whole("widths", width, 1)
    train, valid, test = labelled(train, valid, test, classes=classes)
    features = jnp.shape(train[0]["a"])[1]

    def init(key: jax.Array) -> tuple[Tree, Tree]:
        sizes = [features, *widths]
        keys = jax.random.split(key, len(widths))
        x = [
            {"w": jax.random.normal(k, (a, b)) / jnp.sqrt(1.0 * a), "b": jnp.zeros(b)}
            for k, a, b in zip(keys, sizes, widths)
        ]
        return x, {"w": jnp.zeros((widths[-1], classes)), "b": jnp.zeros(classes)}

    def logits(x: Tree, y: Tree, a: jax.Array) -> jax.Array:
        for layer in x:
            a = act(a @ layer["w"] + layer["b"])
        return a @ y["w"] + y["b"]

    def upper(x: Tree, y: Tree, rows: Any) -> jax.Array:
        scores = jax.nn.log_softmax(logits(x, y, rows["a"]))
        return -jnp.mean(jnp.take_along_axis(scores, rows["b"][:, None], 1))

    def lower(x: Tree, y: Tree, rows: Any) -> jax.Array:
        square = sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(y))
        return upper(x, y, rows) + regularizer / 2 * square

    def accuracy(x: Tree, y: Tree, rows: Any) -> jax.Array:
        return jnp.mean(jnp.argmax(logits(x, y, rows["a"]), 1) == rows["b"])

    level = np.mean([_constant(t["b"], v["b"], classes, regularizer) for t, v in zip(train, valid)])
    metrics = {"accuracy": accuracy}
    return Problem(upper, lower, init, train, valid, test, metrics, constant=float(level))


def _constant(train: Any, valid: Any, classes: int, regularizer: float) -> float:
    """f at the best biases without features: of g = cross-entropy + regularizer / 2 ||b||^2."""
    shares = lambda labels: np.bincount(np.asarray(labels), minlength=classes) / len(labels)
    wanted, b = shares(train), np.zeros(classes)
    for _ in range(50):  # Newton's method
        p = np.exp(b - b.max()) / np.exp(b - b.max()).sum()
        curvature = np.diag(p) - np.outer(p, p) + max(regularizer, 1e-6) * np.eye(classes)
        b -= np.linalg.solve(curvature, p - wanted + regularizer * b)
    scores = b - b.max() - np.log(np.exp(b - b.max()).sum())
    return float(-shares(valid) @ scores)
