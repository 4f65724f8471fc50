"""Hyper-parameter optimization (the paper's third experiment): one shared penalty per feature."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..core.pytrees import Tree
from ..problem import Problem
from ..problem.prediction import LinearPrediction
from ._labels import check_labels
from .feature_penalties import Penalty, penalized_problem, weight_names


# Defined at module level, so that another problem of the same sizes reuses compiled programs.
def _upper(x: Tree, y: Tree, rows: Any) -> jax.Array:
    scores = jax.nn.log_softmax(rows["a"] @ y)
    return -jnp.mean(jnp.take_along_axis(scores, rows["b"][:, None], 1))


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
) -> Problem:
    """Make a problem that learns the penalties of a softmax regression.

    f_i = cross-entropy on validation rows; g_i = cross-entropy + 1/(qp) sum_rk exp(x_r) y_rk^2.

    x holds the p shared log-penalties; y_i is agent i's (p, q) matrix, without a bias.

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

    Returns:
        The problem; its metrics are the accuracy and the mean cross-entropy on `test`.
    """
    train, valid, test = check_labels(train, valid, test, classes=classes)
    features = np.shape(train[0]["a"])[1]
    y = lambda: jnp.zeros((features, classes))
    rows, metrics = (train, valid, test), {"accuracy": _accuracy, "test_loss": _upper}
    options: dict[str, Any] = {"constant": float(np.log(classes)), "weights": _all_weights}
    return penalized_problem(
        _upper,
        y,
        rows,
        metrics,
        start=start,
        names=names,
        y_names=weight_names(names, class_names),
        penalty=penalty,
        smoothing=smoothing,
        predict=LinearPrediction(),
        **options,
    )
