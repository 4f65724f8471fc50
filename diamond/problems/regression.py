"""Regression with one penalty a feature, shared: `hyperparameter` for targets that are numbers."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..core.tree import Tree
from ..problem import Problem
from ._feature_penalties import ElasticNetLoss, Penalty, check_options, entry_names, l2


# Of the module, not of one problem: another problem of the same sizes compiles nothing anew.
def _off(y: Tree, rows: Any) -> jax.Array:
    return rows["a"] @ y["w"] + y["b"] - rows["b"]


def _upper(x: Tree, y: Tree, rows: Any) -> jax.Array:
    return jnp.mean(_off(y, rows) ** 2)


def _lower(x: Tree, y: Tree, rows: Any) -> jax.Array:
    return _upper(x, y, rows) + l2(x, y["w"])


def _weights(y: Tree) -> jax.Array:
    w: jax.Array = y["w"]
    return w


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
    check_options(penalty, smoothing)
    features, net = np.shape(train[0]["a"])[1], penalty == "elastic_net"
    lower = ElasticNetLoss(_upper, _weights, smoothing) if net else _lower

    def init(key: jax.Array) -> tuple[Tree, Tree]:
        y = {"w": jnp.zeros(features), "b": jnp.zeros(())}
        return jnp.full(features * (2 if net else 1), start * 1.0), y

    flat = lambda t, v: np.mean((np.asarray(v["b"]) - np.mean(t["b"])) ** 2)
    level = float(np.mean([flat(t, v) for t, v in zip(train, valid)]))
    metrics = {"absolute_error": _error, "test_loss": _upper}
    of_y = names and {"w": names, "b": "intercept"}
    shown: dict[str, Any] = {
        "names": entry_names(names, penalty),
        "y_names": of_y,
        "x_meaning": "log-penalty",
    }
    return Problem(_upper, lower, init, train, valid, test, metrics, constant=level, **shown)
