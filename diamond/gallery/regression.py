"""Regression with one shared penalty per feature: `hyperparameter` for numeric targets."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..core.pytrees import Tree
from ..problem import Problem
from ..problem.prediction import LinearPrediction, unchanged
from .feature_penalties import Penalty, penalized_problem


# Defined at module level, so that another problem of the same sizes reuses compiled programs.
def _residuals(y: Tree, rows: Any) -> jax.Array:
    return rows["a"] @ y["w"] + y["b"] - rows["b"]


def _upper(x: Tree, y: Tree, rows: Any) -> jax.Array:
    return jnp.mean(_residuals(y, rows) ** 2)


def _error(x: Tree, y: Tree, rows: Any) -> jax.Array:
    return jnp.mean(jnp.abs(_residuals(y, rows)))


def regression(
    train: Sequence[Tree],
    valid: Sequence[Tree],
    test: Sequence[Tree] | None = None,
    start: float = 0.0,
    names: Sequence[str] | None = None,
    penalty: Penalty = "l2",
    smoothing: float = 0.01,
) -> Problem:
    """Make a problem that learns the penalties of a linear regression.

    f_i = mean squared error on validation rows; g_i = that + 1/p sum_r exp(x_r) w_r^2.

    x holds the p shared log-penalties; y_i = {"w": (p,), "b": ()} are agent i's weights and its
    intercept, which is not penalized.

    Args:
        train, valid, test: rows {"a": features (n, p), "b": targets (n,)} per agent.
        start: initial log-penalty.
        names: names of the features.
        penalty, smoothing: as in `hyperparameter`.

    Returns:
        The problem; its metrics are the mean absolute and squared error on `test`.
    """
    features = np.shape(train[0]["a"])[1]
    y = lambda: {"w": jnp.zeros(features), "b": jnp.zeros(())}
    constant_loss = lambda t, v: np.mean((np.asarray(v["b"]) - np.mean(t["b"])) ** 2)
    constant = float(np.mean([constant_loss(t, v) for t, v in zip(train, valid)]))
    rows, metrics = (train, valid, test), {"absolute_error": _error, "test_loss": _upper}
    y_names = names and {"w": names, "b": "intercept"}
    return penalized_problem(
        _upper,
        y,
        rows,
        metrics,
        start=start,
        names=names,
        y_names=y_names,
        penalty=penalty,
        smoothing=smoothing,
        constant=constant,
        predict=LinearPrediction(unchanged),
    )
