"""Regression with one shared penalty per feature: `hyperparameter` for numeric targets."""

from collections.abc import Sequence
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from ..core.pytrees import Tree
from ..problem import Problem
from ..problem.prediction import LinearPrediction, unchanged
from .feature_penalties import Penalties, Penalty, penalized_problem
from .linear_losses import poisson


# Defined at module level, so that another problem of the same sizes reuses compiled programs.
def _residuals(y: Tree, rows: Any) -> jax.Array:
    return rows["a"] @ y["w"] + y["b"] - rows["b"]


def _upper(x: Tree, y: Tree, rows: Any) -> jax.Array:
    return jnp.mean(_residuals(y, rows) ** 2)


def _error(x: Tree, y: Tree, rows: Any) -> jax.Array:
    return jnp.mean(jnp.abs(_residuals(y, rows)))


def _poisson(x: Tree, y: Tree, rows: Any) -> jax.Array:
    return jnp.mean(poisson(rows["a"] @ y["w"] + y["b"], rows["b"]))


def _error_of_counts(x: Tree, y: Tree, rows: Any) -> jax.Array:
    return jnp.mean(jnp.abs(jnp.exp(rows["a"] @ y["w"] + y["b"]) - rows["b"]))


LOSSES = {"squared": (_upper, _error), "poisson": (_poisson, _error_of_counts)}
PREDICTIONS = {"squared": LinearPrediction(unchanged), "poisson": LinearPrediction(jnp.exp)}


def regression(
    train: Sequence[Tree],
    valid: Sequence[Tree],
    test: Sequence[Tree] | None = None,
    start: float = 0.0,
    names: Sequence[str] | None = None,
    penalty: Penalty = "l2",
    smoothing: float = 0.01,
    loss: Literal["squared", "poisson"] = "squared",
    penalties: Penalties = "feature",
    bounded: bool = False,
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
        loss: "squared", or "poisson" for counts: exp(s) - b s of the score s = a'w + b, up to terms
            of the counts.
        penalties: "feature": a penalty for each; "shared": one for all; or labels of the features,
            by name or in their order, one penalty for each label.
        bounded: keep the penalties within 10^-4 to 10^4 times those of a usual start, for features
            of deviation 1: exp(x_r) becomes exp(c + 9.2 tanh(x_r / 9.2)), and x starts at 0.

    Returns:
        The problem; its metrics are the mean absolute error and the loss on `test`.
    """
    features = np.shape(train[0]["a"])[1]
    y = lambda: {"w": jnp.zeros(features), "b": jnp.zeros(())}
    if loss not in LOSSES:
        raise ValueError(f"loss = {loss!r}; there are {' and '.join(map(repr, LOSSES))}")
    mean_loss, error = LOSSES[loss]
    pairs = [(np.mean(t["b"]), np.asarray(v["b"])) for t, v in zip(train, valid)]
    if loss == "squared":
        constants = [np.mean((targets - mean) ** 2) for mean, targets in pairs]
    elif min(np.min(t["b"]) for t in train) < 0 or not all(mean for mean, _ in pairs):
        raise ValueError(
            "loss='poisson' needs counts of 0 and above, and one above 0 at every agent; give "
            "other rows, or loss='squared'"
        )
    else:
        constants = [mean - np.mean(targets) * np.log(mean) for mean, targets in pairs]
    return penalized_problem(
        mean_loss,
        y,
        (train, valid, test),
        {"absolute_error": error, "test_loss": mean_loss},
        start=start,
        names=names,
        y_names=names and {"w": names, "b": "intercept"},
        penalty=penalty,
        smoothing=smoothing,
        penalties=penalties,
        bounded=bounded,
        unit=2.0 if loss == "squared" else 1.0,
        constant=float(np.mean(constants)),
        predict=PREDICTIONS[loss],
    )
