"""Hyper-parameter optimization (the paper's third experiment): one shared penalty per feature."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..core.pytrees import Tree
from ..problem import Problem
from ..problem.prediction import LinearPrediction
from . import softmax_regression
from ._labels import check_labels
from .feature_penalties import Penalties, Penalty, penalized_problem, weight_names

ABSENT = -20.0  # intercept of a class that an agent has no rows of: a probability of about 1e-9


# Defined at module level, so that another problem of the same sizes reuses compiled programs.
def _upper(x: Tree, y: Tree, rows: Any) -> jax.Array:
    scores = jax.nn.log_softmax(rows["a"] @ y)
    return -jnp.mean(jnp.take_along_axis(scores, rows["b"][:, None], 1))


def _lower_with_intercepts(x: Tree, y: Tree, rows: Tree) -> jax.Array:
    """Return the mean cross-entropy, and squares that determine all intercepts.

    Adding a number to all intercepts changes no probability, and no row determines the intercept of
    a class that the agent has no rows of. The squares are 0 at the minimum.
    """
    has = rows["has"]
    mean = jnp.sum(jnp.where(has, y["b"], 0), 1) / jnp.sum(has, 1)
    absent = jnp.sum(jnp.where(has, 0, y["b"] - ABSENT) ** 2, 1)
    return softmax_regression.upper(x, y, rows) + 0.5 * jnp.mean(mean**2 + absent)


def _all_weights(y: Tree) -> jax.Array:
    return y


def _accuracy(x: Tree, y: Tree, rows: Any) -> jax.Array:
    return jnp.mean(jnp.argmax(rows["a"] @ y, 1) == rows["b"])


def hyperparameter(
    train: Sequence[Tree],
    valid: Sequence[Tree],
    test: Sequence[Tree] | None = None,
    classes: int = 2,
    start: float = 0.0,
    names: Sequence[str] | None = None,
    penalty: Penalty = "l2",
    smoothing: float = 0.01,
    class_names: Sequence[str] | None = None,
    penalties: Penalties = "feature",
    bounded: bool = False,
    intercept: bool = False,
) -> Problem:
    """Make a problem that learns the penalties of a softmax regression.

    f_i = cross-entropy on validation rows; g_i = cross-entropy + 1/(qp) sum_rk exp(x_r) y_rk^2.

    x holds the p shared log-penalties; y_i is agent i's (p, q) matrix.

    Args:
        train, valid, test: rows {"a": features (n, p), "b": labels (n,)} per agent.
        classes: q, number of classes.
        start: initial log-penalty.
        names: names of the features.
        penalty: "l2", or "elastic_net": x holds p log-penalties of squares, then p of absolute
            values, which add 1/(qp) sum_rk exp(x_(p+r)) h(y_rk) to g_i; h(y) = sqrt(y^2 + s^2) - s
            is |y| to within s and has the two derivatives that the hypergradient needs.
        smoothing: s.
        class_names: names of the classes.
        penalties, bounded: as in `regression`.
        intercept: y_i = {"w": (p, q), "b": (q,)} has intercepts, which are not penalized. That of a
            class without training rows at agent i is -20, the others are 0 on average.

    Returns:
        The problem; its metrics are the accuracy and the mean cross-entropy on `test`.
    """
    train, valid, test = check_labels(train, valid, test, classes=classes)
    features = np.shape(train[0]["a"])[1]
    y_names: Any = weight_names(names, class_names)
    model: dict[str, Any] = {"weights": _all_weights}
    loss, metric, first_y = _upper, _accuracy, lambda: jnp.zeros((features, classes))
    if intercept:
        train = [_mark_classes(rows, classes) for rows in train]
        y_names = names and {"w": y_names, "b": [f"intercept, {k}" for k in range(classes)]}
        if names and class_names:
            y_names["b"] = [f"intercept, {name}" for name in class_names]
        loss, metric = softmax_regression.upper, softmax_regression.accuracy
        first_y = partial(softmax_regression.zeros, features, classes)
        model = {"lower_loss": _lower_with_intercepts}
    return penalized_problem(
        loss,
        first_y,
        (train, valid, test),
        {"accuracy": metric, "test_loss": loss},
        start=start,
        names=names,
        y_names=y_names,
        penalty=penalty,
        smoothing=smoothing,
        penalties=penalties,
        bounded=bounded,
        unit=2.0 if classes == 2 else 1.0,  # weights of two classes are half of their difference
        constant=float(np.log(classes)),
        predict=LinearPrediction(),
        **model,
    )


def _mark_classes(rows: Tree, classes: int) -> Tree:
    """Add the leaf "has": whether the agent has rows of each class."""
    has = np.bincount(rows["b"], minlength=classes) > 0
    return {**rows, "has": np.broadcast_to(has, (len(rows["b"]), classes))}
