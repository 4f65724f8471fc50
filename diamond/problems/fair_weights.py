"""Fair weights: how much each agent's rows count for a model that is to serve all of them alike."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..core.tree import Tree
from ..problem import Problem, prox
from ._labels import labelled
from ._softmax_regression import accuracy, upper, weighted, zeros


def fair_weights(
    train: Sequence[Tree],
    valid: Sequence[Tree],
    test: Sequence[Tree] | None = None,
    classes: int = 2,
    regularizer: float = 1e-3,
    agent_names: Sequence[str] | None = None,
) -> Problem:
    """f_i = cross-entropy on validation rows; g_i = m x_i cross-entropy + regularizer ||y||^2.

    x are the weights of the m agents, x >= 0 with the sum 1, begun at 1/m: a mixture of their
    training rows, to which one y is fitted, y*(x) = argmin_y 1/m sum_i g_i, a softmax regression
    {"w": (p, q), "b": (q,)} in common. f counts every agent alike, however many rows it has;
    whose rows mislead the model loses its weight, whose kind is rare gains. Rows are
    {"a": features (n, p), "b": labels (n,)}. The metric is the accuracy on `test`. For methods
    that project: `order="atc"` where they have an order. `agent_names` are those of the agents.
    """
    train, valid, test = labelled(train, valid, test, classes=classes)
    agents, features = len(train), np.shape(train[0]["a"])[1]
    whose = lambda agent, rows: {"agent": np.full(len(rows["b"]), agent, np.int32)}
    train = [rows | whose(agent, rows) for agent, rows in enumerate(train)]

    def init(key: jax.Array) -> tuple[Tree, Tree]:
        return jnp.full(agents, 1 / agents), zeros(features, classes)

    def lower(x: Tree, y: Tree, rows: Any) -> jax.Array:
        return weighted(agents * x[rows["agent"]], y, rows, regularizer)

    level = float(np.log(classes))
    parts, metrics = (train, valid, test), {"accuracy": accuracy}
    kind: dict[str, Any] = {"lower_level": "common", "prox": prox.simplex()}
    kind |= {"names": agent_names, "agent_names": agent_names, "x_meaning": "weight of an agent"}
    return Problem(upper, lower, init, *parts, metrics, constant=level, **kind)
