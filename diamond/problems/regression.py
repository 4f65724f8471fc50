"""Regression with one penalty a feature, shared: `hyperparameter` for targets that are numbers."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..core.tree import Tree
from ..problem import Problem
from ._feature_penalties import Penalty, penalized


# Of the module, not of one problem: another problem of the same sizes compiles nothing anew.
def _off(y: Tree, rows: Any) -> jax.Array:
    return rows["a"] @ y["w"] + y["b"] - rows["b"]


def _upper(x: Tree, y: Tree, rows: Any) -> jax.Array:
    return jnp.mean(_off(y, rows) ** 2)


def _error(x: Tree, y: Tree, rows: Any) -> jax.Array:
    return jnp.mean(jnp.abs(_off(y, rows)))


def regression(
    train: Sequence[Tree],
    valid: Sequence[Tree],
    test: Sequence[Tree] | None = None,
    start: float = 0.0,
    names: Sequence[str] | None = None,
    penalty: Penalty = "l2",
    smoothing: float = 0.01,
) -> Problem:
    """f_i = mean squared error on validation rows; g_i = that + 1/p sum_r exp(x_r) w_r^2.

    Rows are {"a": features (n, p), "b": targets (n,)}. x holds the p log-penalties, shared and
    begun at `start`; y_i = {"w": (p,), "b": ()} are agent i's weights and its level, which is not
    penalized. The metrics are the mean absolute and squared error on `test`. `names` are the
    features'. `penalty` and `smoothing`: those of `hyperparameter`.
    """
    features = np.shape(train[0]["a"])[1]
    y = lambda: {"w": jnp.zeros(features), "b": jnp.zeros(())}
    flat = lambda t, v: np.mean((np.asarray(v["b"]) - np.mean(t["b"])) ** 2)
    level = float(np.mean([flat(t, v) for t, v in zip(train, valid)]))
    rows, metrics = (train, valid, test), {"absolute_error": _error, "test_loss": _upper}
    y_names = names and {"w": names, "b": "intercept"}
    return penalized(_upper, y, rows, metrics, start, names, y_names, penalty, smoothing, level)
