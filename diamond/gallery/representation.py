"""Shared representation: any network as backbone x, and a linear head y_i per agent."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..core.pytrees import Tree
from ..core.validation import as_int
from ..problem import Problem
from ..problem.prediction import class_probabilities
from ._labels import check_labels

Backbone = Callable[[Tree, jax.Array], jax.Array]


@dataclass(frozen=True)  # equal objects share compiled programs
class HeadLoss:
    """Mean loss of the linear heads y on the features of the backbone x."""

    backbone: Backbone
    classes: int | None  # None: targets

    def scores(self, x: Tree, y: Tree, a: Any) -> jax.Array:
        """Return the scores or predictions of the rows a."""
        return self.backbone(x, a) @ y["w"] + y["b"]

    def predict(self, x: Tree, y: Tree, rows: Any) -> jax.Array:
        """Return the predictions of rows, or the probabilities of their classes."""
        scores = self.scores(x, y, rows["a"])
        return scores if self.classes is None else class_probabilities(scores)

    def __call__(self, x: Tree, y: Tree, rows: Any) -> jax.Array:
        scores = self.scores(x, y, rows["a"])
        if self.classes is None:
            return jnp.mean((scores - rows["b"]) ** 2)
        log_probabilities = jax.nn.log_softmax(scores)
        return -jnp.mean(jnp.take_along_axis(log_probabilities, rows["b"][:, None], 1))


@dataclass(frozen=True)
class RegularizedHeadLoss:
    """`loss` plus regularizer/2 ||y||^2."""

    loss: HeadLoss
    regularizer: float

    def __call__(self, x: Tree, y: Tree, rows: Any) -> jax.Array:
        square = sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(y))
        return self.loss(x, y, rows) + self.regularizer / 2 * square


def representation(
    backbone: Backbone,
    init: Callable[[jax.Array], Tree],
    train: Sequence[Tree],
    valid: Sequence[Tree],
    test: Sequence[Tree] | None = None,
    classes: int | None = 10,
    regularizer: float = 1.0,
) -> Problem:
    """Make a problem with a shared backbone and personal linear heads.

    f_i = loss on validation rows, g_i = loss on training rows + regularizer/2 ||y_i||^2.

    Args:
        backbone: backbone(x, a) returns the features (n, width) of the rows a.
        init: init(key) returns x, any pytree of floating-point arrays, such as the parameters of a
            flax or equinox network.
        train, valid, test: rows {"a": (n, ...), "b": (n,)} per agent.
        classes: q: y_i = {"w": (width, q), "b": (q,)}, the loss is the cross-entropy of labels b,
            the metric the accuracy on `test`. None: b are targets, y_i = {"w": (width,), "b": ()},
            the loss is the mean squared error, the metric `test_loss`.
        regularizer: weight of ||y_i||^2 / 2.

    Returns:
        The problem.
    """
    if classes is not None:
        as_int("classes", classes, 2)
        train, valid, test = check_labels(train, valid, test, classes=classes)
    row = jax.tree.map(lambda a: jnp.asarray(a[:1]), train[0]["a"])
    features = jax.eval_shape(lambda: backbone(init(jax.random.key(0)), row))
    if getattr(features, "shape", ())[:1] != (1,) or features.ndim != 2:
        raise ValueError(
            f"backbone(x, a) of one row is {features}; it must be one array (rows, width): flatten "
            f"what a row becomes"
        )
    width = features.shape[1]

    def start(key: jax.Array) -> tuple[Tree, Tree]:
        if classes is None:
            return init(key), {"w": jnp.zeros(width), "b": jnp.zeros(())}
        return init(key), {"w": jnp.zeros((width, classes)), "b": jnp.zeros(classes)}

    upper = HeadLoss(backbone, classes)
    lower = RegularizedHeadLoss(upper, regularizer)

    def accuracy(x: Tree, y: Tree, rows: Any) -> jax.Array:
        return jnp.mean(jnp.argmax(upper.scores(x, y, rows["a"]), 1) == rows["b"])

    metrics: dict[str, Any] = {"test_loss": upper} if classes is None else {"accuracy": accuracy}
    constant_loss = lambda t, v: _constant_loss(t["b"], v["b"], classes, regularizer)
    constant_level = float(np.mean([constant_loss(t, v) for t, v in zip(train, valid)]))
    options: dict[str, Any] = {"constant": constant_level, "predict": upper.predict}
    return Problem(upper, lower, start, train, valid, test, metrics, **options)


def _constant_loss(train: Any, valid: Any, classes: int | None, regularizer: float) -> float:
    """Return f at the best biases without features, of g = loss + regularizer / 2 ||b||^2."""
    if classes is None:
        level = np.mean(train) / (1 + regularizer / 2)
        return float(np.mean((np.asarray(valid) - level) ** 2))
    shares = lambda labels: np.bincount(np.asarray(labels), minlength=classes) / len(labels)
    train_shares, b = shares(train), np.zeros(classes)
    for _ in range(50):  # Newton's method
        p = np.exp(b - b.max()) / np.exp(b - b.max()).sum()
        curvature = np.diag(p) - np.outer(p, p) + max(regularizer, 1e-6) * np.eye(classes)
        b -= np.linalg.solve(curvature, p - train_shares + regularizer * b)
    scores = b - b.max() - np.log(np.exp(b - b.max()).sum())
    return float(-shares(valid) @ scores)
