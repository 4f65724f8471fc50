"""Cleaning of the training rows of a convolutional network by one weight per row."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..core.pytrees import Tree
from ..core.validation import as_int
from ..problem import LowerLevel, Problem
from ..problem.prediction import class_probabilities
from ._convolutions import image_shape, initialize, logits
from ._labels import check_labels
from ._separation import auc
from .hyper_cleaning import corrupt, with_weight_index


class NetworkCleaning(Problem):
    """A problem that knows which entries of x belong to rows with wrong labels."""

    wrong: np.ndarray  # (numbers in x,) of bool

    def auc(self, x: Any) -> float:
        """Return the probability that a right row has a larger weight than a wrong row."""
        mean = np.asarray(x).reshape(-1, self.wrong.size).mean(0)
        return float(auc(jnp.asarray(mean), ~self.wrong))


@dataclass(frozen=True)  # equal objects share compiled programs
class ImagePrediction:
    """Prediction of the network y for images, flattened or not."""

    shape: tuple[int, int, int]  # height, width, colors

    def scores(self, y: Tree, rows: Any) -> jax.Array:
        """Return the scores of the classes."""
        return logits(y, jnp.reshape(rows["a"], (-1, *self.shape)))

    def __call__(self, x: Tree, y: Tree, rows: Any) -> jax.Array:
        return class_probabilities(self.scores(y, rows))


def network_cleaning(
    train: Sequence[Tree],
    valid: Sequence[Tree],
    test: Sequence[Tree] | None = None,
    classes: int = 10,
    corrupted: float = 0.4,
    channels: Sequence[int] = (16, 32),
    shape: Sequence[int] = (),
    regularizer: float = 1e-4,
    seed: int = 0,
    lower_level: LowerLevel = "common",
    remat: bool = False,
) -> NetworkCleaning:
    """Make a problem that finds wrong training labels of a convolutional network.

        f_i = cross-entropy on clean validation rows
        g_i = mean_r sigmoid(x_k(r)) cross-entropy(y; r) + regularizer ||y||^2 on training rows

    As `hyper_cleaning`, with a network as y: not convex, so that runs are measured without y*(x).
    x is shared: one number for every training row of every agent, starting at 0.

    Args:
        train, valid, test: rows {"a": images, flattened to (n, p) or not, "b": labels (n,)} per
            agent. Training rows may have a leaf "k", integers from 0: rows of one source (an
            annotator, a sensor) then share a weight across agents.
        classes: number of classes.
        corrupted: share of training rows (or sources) whose labels are changed; 0: none.
        channels: channels of the convolutions, one number for each block of the network.
        shape: height, width and colors of an image; by default those of a square image.
        regularizer: weight of ||y||^2.
        seed: seed of the corruption.
        lower_level: "common": one network is trained on the rows of all agents, and more right rows
            show which rows are wrong. "personal": each agent trains its own network.
        remat: compute activations again in the backward pass instead of storing them.

    Returns:
        The problem; its metrics are the accuracy on `test`, and `auc` of right against wrong rows.
    """
    train, valid, test = check_labels(train, valid, test, classes=classes)
    for count in channels:
        as_int("channels", count, 1)
    train = with_weight_index(train)
    size = prod(np.shape(train[0]["a"])[1:])
    height, width, colors = tuple(shape) or image_shape(size)
    predict = ImagePrediction((height, width, colors))
    if prod(predict.shape) != size:
        raise ValueError(f"shape = {tuple(shape)}, but rows have {size} features")
    train, wrong = corrupt(train, corrupted, classes, seed)

    def init(key: jax.Array) -> tuple[Tree, Tree]:
        return jnp.zeros(wrong.size), initialize(key, colors, channels, classes)

    def cross_entropies(y: Tree, rows: Any) -> jax.Array:
        log_shares = jax.nn.log_softmax(predict.scores(y, rows))
        return -jnp.take_along_axis(log_shares, rows["b"][:, None], 1)[:, 0]

    def upper(x: Tree, y: Tree, rows: Any) -> jax.Array:
        return jnp.mean(cross_entropies(y, rows))

    def lower(x: Tree, y: Tree, rows: Any) -> jax.Array:
        square = sum(jnp.sum(leaf * leaf) for leaf in jax.tree.leaves(y))
        weights = jax.nn.sigmoid(x[rows["k"]])
        return jnp.mean(weights * cross_entropies(y, rows)) + regularizer * square

    def accuracy(x: Tree, y: Tree, rows: Any) -> jax.Array:
        return jnp.mean(jnp.argmax(predict.scores(y, rows), 1) == rows["b"])

    metrics: dict[str, Any] = {"accuracy": accuracy}
    if wrong.any():
        metrics["auc"] = lambda x, y, rows: auc(x, ~wrong)
    problem = NetworkCleaning(
        upper,
        lower,
        init,
        train,
        valid,
        test,
        metrics,
        lower_level=lower_level,
        convex=False,
        remat=remat,
        predict=predict,
    )
    problem.wrong = wrong
    return problem
