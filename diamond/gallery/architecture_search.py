"""Architecture search: shared weights of operations above, each agent's network below."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..core.pytrees import Tree
from ..core.validation import as_int
from ..problem import Problem
from ..problem.prediction import class_probabilities
from ._convolutions import image_shape
from ._labels import check_labels

OPERATIONS = ("identity", "average", "maximum", "convolution")


class ArchitectureSearch(Problem):
    """A problem whose x are logits of the operations of each layer."""

    def mixture(self, x: Any) -> np.ndarray:
        """Return the weights (layers, operations) of the operations, from x or all agents' x."""
        mean = np.asarray(x, float).reshape(-1, *np.shape(x)[-2:]).mean(0)
        return np.asarray(jax.nn.softmax(mean))

    def architecture(self, x: Any) -> list[str]:
        """Return the operation of the largest weight, of every layer."""
        return [OPERATIONS[k] for k in self.mixture(x).argmax(1)]


@dataclass(frozen=True)  # equal objects share compiled programs
class MixedNetwork:
    """Network y with the mixture of operations x, for images of this shape."""

    shape: tuple[int, int, int]  # height, width, colors

    def scores(self, x: Tree, y: Tree, rows: Any) -> jax.Array:
        """Return the scores of the classes."""
        states = jnp.reshape(rows["a"], (-1, *self.shape)).astype(y["w"].dtype)
        for weights, layer in zip(jax.nn.softmax(x), y["layers"]):
            states = _mix(weights, layer, states)
        return states.reshape(len(states), -1) @ y["w"] + y["b"]

    def __call__(self, x: Tree, y: Tree, rows: Any) -> jax.Array:
        return class_probabilities(self.scores(x, y, rows))


def _mix(weights: jax.Array, layer: Tree, states: jax.Array) -> jax.Array:
    """Return means over 2 x 2 pixels of the weighted sum of all operations."""
    shifted = jnp.pad(states, ((0, 0), (1, 1), (1, 1), (0, 0)))
    n, height, width, colors = states.shape
    windows = jnp.stack(
        [shifted[:, i : i + height, j : j + width] for i in range(3) for j in range(3)], 3
    )
    copies = layer["b"].size // colors  # operations without weights keep their channels
    widen = lambda outcome: jnp.tile(outcome, (1, 1, 1, copies))
    convolved = windows.reshape(n, height, width, -1) @ layer["w"]
    outcomes = (
        widen(states),
        widen(windows.mean(3)),
        widen(windows.max(3)),
        jax.nn.relu(convolved + layer["b"]),
    )
    mixed = sum(weight * outcome for weight, outcome in zip(weights, outcomes))
    channels = mixed.shape[-1]
    rows, columns = _halve(height, width)
    even = mixed[:, : rows * (height // rows), : columns * (width // columns)]
    blocks = even.reshape(n, rows, height // rows, columns, width // columns, channels)
    return blocks.mean((2, 4))


def _halve(height: int, width: int) -> tuple[int, int]:
    """Return the size of an image after means over 2 x 2 pixels, if there are as many."""
    return (height // 2, width // 2) if min(height, width) > 1 else (height, width)


def architecture_search(
    train: Sequence[Tree],
    valid: Sequence[Tree],
    test: Sequence[Tree] | None = None,
    classes: int = 10,
    channels: int = 4,
    layers: int = 2,
    shape: Sequence[int] = (),
    regularizer: float = 1e-3,
) -> ArchitectureSearch:
    """Make a problem that chooses the operation of every layer of a network.

        f_i = cross-entropy on validation rows
        g_i = cross-entropy on training rows + regularizer ||y_i||^2

    Every layer of the network is sum_o softmax(x_layer)_o o(input), o one of `OPERATIONS`: the
    input itself, its average or its maximum over 3 x 3 pixels (0 beyond the edge), or a convolution
    with a ReLU; means over 2 x 2 pixels follow, and a linear layer at the end (DARTS: Liu, Simonyan
    and Yang, 2019). x (layers, operations), shared, starts at 0; y_i are agent i's own kernels and
    linear layer.

    Args:
        train, valid, test: rows {"a": images, flattened to (n, p) or not, "b": labels (n,)} per
            agent.
        classes: number of classes.
        channels: channels of every layer, a multiple of the colors of an image.
        layers: number of layers; each halves height and width, down to one pixel.
        shape: height, width and colors of an image; by default those of a square image.
        regularizer: weight of ||y_i||^2.

    Returns:
        The problem; its metric is the accuracy on `test`.
    """
    train, valid, test = check_labels(train, valid, test, classes=classes)
    size = prod(np.shape(train[0]["a"])[1:])
    height, width, colors = tuple(shape) or image_shape(size)
    if height * width * colors != size:
        raise ValueError(f"shape = {tuple(shape)}, but rows have {size} features")
    if as_int("channels", channels, 1) % colors:
        raise ValueError(f"channels = {channels}; give a multiple of {colors}, the colors")
    network = MixedNetwork((height, width, colors))
    inputs = [colors, *[channels] * (as_int("layers", layers, 1) - 1)]
    for _ in inputs:
        height, width = _halve(height, width)

    def init(key: jax.Array) -> tuple[Tree, Tree]:
        kernels = [
            (2 / (9 * a)) ** 0.5 * jax.random.normal(k, (9 * a, channels))
            for k, a in zip(jax.random.split(key, layers), inputs)
        ]
        y: dict[str, Any] = {"layers": [{"w": w, "b": jnp.zeros(channels)} for w in kernels]}
        y |= {"w": jnp.zeros((height * width * channels, classes)), "b": jnp.zeros(classes)}
        return jnp.zeros((layers, len(OPERATIONS))), y

    def upper(x: Tree, y: Tree, rows: Any) -> jax.Array:
        log_shares = jax.nn.log_softmax(network.scores(x, y, rows))
        return -jnp.mean(jnp.take_along_axis(log_shares, rows["b"][:, None], 1))

    def lower(x: Tree, y: Tree, rows: Any) -> jax.Array:
        square = sum(jnp.sum(leaf * leaf) for leaf in jax.tree.leaves(y))
        return upper(x, y, rows) + regularizer * square

    def accuracy(x: Tree, y: Tree, rows: Any) -> jax.Array:
        return jnp.mean(jnp.argmax(network.scores(x, y, rows), 1) == rows["b"])

    metrics, constant = {"accuracy": accuracy}, float(np.log(classes))
    options: dict[str, Any] = {"constant": constant, "convex": False, "predict": network}
    return ArchitectureSearch(upper, lower, init, train, valid, test, metrics, **options)
