"""Meta-learning (the paper's first experiment): the representation is a few dense layers."""

from collections.abc import Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp

from ..core.pytrees import Tree
from ..core.suggestions import did_you_mean
from ..core.validation import as_int
from ..problem import Problem
from .representation import representation

ACTIVATIONS = {
    "tanh": jnp.tanh,
    "relu": jax.nn.relu,
    "gelu": jax.nn.gelu,
    "softplus": jax.nn.softplus,
}


@dataclass(frozen=True)  # equal objects share compiled programs
class DenseLayers:
    """Backbone of dense layers x with an activation function."""

    activation: str

    def __post_init__(self) -> None:
        if self.activation not in ACTIVATIONS:
            suggestion = did_you_mean(self.activation, ACTIVATIONS)
            raise ValueError(f"no activation {self.activation!r}; {suggestion}")

    def __call__(self, x: Tree, a: jax.Array) -> jax.Array:
        for layer in x:
            a = ACTIVATIONS[self.activation](a @ layer["w"] + layer["b"])
        return a


def meta_learning(
    train: Sequence[Tree],
    valid: Sequence[Tree],
    test: Sequence[Tree] | None = None,
    classes: int = 10,
    widths: Sequence[int] = (20, 20),
    activation: str = "tanh",
    regularizer: float = 1.0,
) -> Problem:
    """Make a meta-learning problem with a shared representation.

    f_i = cross-entropy on validation rows, g_i = cross-entropy + regularizer/2 ||y_i||^2.

    x holds the shared hidden layers, y_i the weights and biases of agent i's last layer.

    Args:
        train, valid, test: rows {"a": features (n, p), "b": labels (n,)} per agent.
        classes: number of classes.
        widths: units of the hidden layers.
        activation: name of the activation function.
        regularizer: weight of ||y_i||^2 / 2.

    Returns:
        The problem; its metric is the accuracy on `test`.
    """
    backbone = DenseLayers(activation)
    for width in widths:
        as_int("widths", width, 1)
    features = jnp.shape(train[0]["a"])[1]

    def init(key: jax.Array) -> Tree:
        sizes = [features, *widths]
        keys = jax.random.split(key, len(widths))
        return [
            {"w": jax.random.normal(k, (a, b)) / jnp.sqrt(1.0 * a), "b": jnp.zeros(b)}
            for k, a, b in zip(keys, sizes, widths)
        ]

    return representation(backbone, init, train, valid, test, classes, regularizer)
