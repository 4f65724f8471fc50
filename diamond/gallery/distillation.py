"""Dataset distillation: a few synthetic rows that replace the rows of all agents."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..core.pytrees import Tree
from ..core.validation import as_int
from ..problem import Problem
from ..problem.prediction import LinearPrediction, unchanged
from ._labels import check_labels
from .softmax_regression import accuracy, zeros


def distillation(
    train: Sequence[Tree],
    valid: Sequence[Tree],
    test: Sequence[Tree] | None = None,
    classes: int = 10,
    each: int = 1,
    regularizer: float = 0.1,
    start: float = 0.3,
) -> Problem:
    """Make a dataset distillation problem.

        f_i = mean_r 1/2 |a_r'w + b - e_r|^2 over agent i's own rows, training and validation
        g_i = mean_k 1/2 |x_k'w + b - e_k|^2 + regularizer/2 (|w|^2 + |b|^2) over synthetic rows

    x, shared, are the synthetic rows (n, p), n = each * q, with fixed labels. y_i = {"w": (p, q),
    "b": (q,)} is a ridge regression on the classes (e is 1 at the row's class, else 0), fitted to
    the synthetic rows alone, like the kernel ridge regression of Nguyen, Chen and Lee (2021); y*(x)
    is known in closed form.

    Args:
        train, valid, test: rows {"a": features (m, p), "b": labels (m,)} per agent.
        classes: q, number of classes.
        each: synthetic rows per class.
        regularizer: weight of the ridge penalty.
        start: deviation of the normal noise at which x starts; it contains no agent's rows.

    Returns:
        The problem; its metric is the accuracy on `test` of a model that saw only x.
    """
    train, valid, test = check_labels(train, valid, test, classes=classes)
    as_int("each", each, 1)
    if not regularizer > 0:
        raise ValueError(f"regularizer = {regularizer}; give a number above 0: y* is not unique")
    agent_rows = [
        {k: np.concatenate([np.asarray(t[k]), np.asarray(v[k])]) for k in "ab"}
        for t, v in zip(train, valid, strict=True)
    ]
    features = np.shape(agent_rows[0]["a"])[1]
    labels = np.repeat(np.arange(classes, dtype=np.int32), each)
    synthetic = {"k": np.arange(len(labels), dtype=np.int32), "b": labels}

    def init(key: jax.Array) -> tuple[Tree, Tree]:
        x = start * jax.random.normal(key, (len(labels), features))
        return x, zeros(features, classes)

    def loss(y: Tree, a: jax.Array, b: jax.Array) -> jax.Array:
        residuals = a @ y["w"] + y["b"] - jax.nn.one_hot(b, classes)
        return jnp.mean(jnp.sum(residuals**2, 1)) / 2

    def upper(x: Tree, y: Tree, rows: Any) -> jax.Array:
        return loss(y, rows["a"], rows["b"])

    def lower(x: Tree, y: Tree, rows: Any) -> jax.Array:
        square = jnp.sum(y["w"] ** 2) + jnp.sum(y["b"] ** 2)
        return loss(y, x[rows["k"]], rows["b"]) + regularizer / 2 * square

    return Problem(
        upper,
        lower,
        init,
        [synthetic] * len(agent_rows),
        agent_rows,
        test,
        {"accuracy": accuracy},
        predict=LinearPrediction(unchanged),
    )
