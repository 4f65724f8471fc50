"""Fair weights: the weight of each agent's rows in a model that serves all agents equally."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..core.pytrees import Tree
from ..problem import Problem, proximal_operators
from ..problem.prediction import LinearPrediction
from ._labels import check_labels
from .softmax_regression import accuracy, upper, weighted_loss, zeros


def fair_weights(
    train: Sequence[Tree],
    valid: Sequence[Tree],
    test: Sequence[Tree] | None = None,
    classes: int = 2,
    regularizer: float = 1e-3,
    agent_names: Sequence[str] | None = None,
) -> Problem:
    """Make a problem that learns the weights of the agents.

    f_i = cross-entropy on validation rows; g_i = m x_i cross-entropy + regularizer ||y||^2.

    x are the weights of the m agents, x >= 0 with sum 1, starting at 1/m. They define a mixture of
    training rows, to which one common softmax regression {"w": (p, q), "b": (q,)} is fitted, y*(x)
    = argmin_y 1/m sum_i g_i. f counts every agent equally: agents with misleading rows lose weight,
    agents with rare rows gain. Use methods that project, with `order="atc"` if they have an order.

    Args:
        train, valid, test: rows {"a": features (n, p), "b": labels (n,)} per agent.
        classes: q, number of classes.
        regularizer: weight of ||y||^2.
        agent_names: names of the agents.

    Returns:
        The problem; its metric is the accuracy on `test`.
    """
    train, valid, test = check_labels(train, valid, test, classes=classes)
    agents, features = len(train), np.shape(train[0]["a"])[1]
    agent_column = lambda agent, rows: {"agent": np.full(len(rows["b"]), agent, np.int32)}
    train = [rows | agent_column(agent, rows) for agent, rows in enumerate(train)]

    def init(key: jax.Array) -> tuple[Tree, Tree]:
        return jnp.full(agents, 1 / agents), zeros(features, classes)

    def lower(x: Tree, y: Tree, rows: Any) -> jax.Array:
        return weighted_loss(agents * x[rows["agent"]], y, rows, regularizer)

    level = float(np.log(classes))
    parts, metrics = (train, valid, test), {"accuracy": accuracy}
    options: dict[str, Any] = {"lower_level": "common", "prox": proximal_operators.simplex()}
    options |= {
        "predict": LinearPrediction(),
        "names": agent_names,
        "agent_names": agent_names,
        "x_meaning": "weight of an agent",
    }
    return Problem(upper, lower, init, *parts, metrics, constant=level, **options)
