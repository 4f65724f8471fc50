"""Support vector machines with one shared penalty per feature: `hyperparameter` for hinges."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..core.pytrees import Tree
from ..problem import Problem
from ..problem.prediction import LinearPrediction, unchanged
from ._labels import check_labels
from .feature_penalties import penalized_problem, weight_names
from .softmax_regression import accuracy, zeros


def _hinge(x: Tree, y: Tree, rows: Any) -> jax.Array:
    scores = rows["a"] @ y["w"] + y["b"]
    signs = 2 * jax.nn.one_hot(rows["b"], scores.shape[1]) - 1
    return jnp.mean(jnp.maximum(0, 1 - signs * scores) ** 2)


def support_vectors(
    train: Sequence[Tree],
    valid: Sequence[Tree],
    test: Sequence[Tree] | None = None,
    classes: int = 2,
    start: float = 0.0,
    names: Sequence[str] | None = None,
    class_names: Sequence[str] | None = None,
) -> Problem:
    """Make a problem that learns the penalties of support vector machines.

    f_i = mean squared hinge on validation rows; g_i = that + 1/(qp) sum_rk exp(x_r) w_rk^2.

    The hinge of a row is 1/q sum_k max(0, 1 - s_k (a'w_k + b_k))^2, s_k = 1 for its own class and
    -1 for the others: one machine per class against the rest. The squared hinge has the gradient
    that f_y needs, and a Hessian if no row is on a margin. x holds the p shared log-penalties; y_i
    = {"w": (p, q), "b": (q,)} are agent i's machines, with unpenalized intercepts b.

    Args:
        train, valid, test: rows {"a": features (n, p), "b": labels (n,)} per agent.
        classes: q, number of classes.
        start: initial log-penalty.
        names: names of the features.
        class_names: names of the classes.

    Returns:
        The problem; its metric is the accuracy on `test`.
    """
    train, valid, test = check_labels(train, valid, test, classes=classes)
    y = partial(zeros, np.shape(train[0]["a"])[1], classes)
    rows, metrics = (train, valid, test), {"accuracy": accuracy}
    intercepts = [f"intercept[{k}]" for k in range(classes)]
    if class_names is not None:
        intercepts = [f"intercept, {name}" for name in class_names]
    y_names = names and {"w": weight_names(names, class_names), "b": intercepts}
    return penalized_problem(
        _hinge,
        y,
        rows,
        metrics,
        start=start,
        names=names,
        y_names=y_names,
        predict=LinearPrediction(unchanged),
    )
