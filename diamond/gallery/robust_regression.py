"""Distributionally robust regression: a minimax problem between a model and the agents' weights."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..core.pytrees import Tree
from ..problem import Problem


class RobustRegression(Problem):
    """A minimax problem with closed forms: l(x) = mean of l_i + variance of l_i / (2 penalty)."""

    moments: np.ndarray  # (agents, p + 2, p + 2), mean of rr' over r = (a, 1, -b)
    penalty: float

    def losses(self, x: Tree) -> np.ndarray:
        """Return l_i(x), half the mean squared error on the rows of each agent."""
        return self._losses(_flat(x))

    def lower_solution(self, x: Tree) -> np.ndarray:
        """Return y*(x) = (l_i - mean of l) / penalty: the worst weights are 1 + y*."""
        return self._worst_weights(_flat(x)) - 1

    def gradient(self, x: Tree) -> dict[str, np.ndarray]:
        """Return grad l(x) = mean of (1 + y*_i) grad l_i, which is f_x at y*(x)."""
        return _tree(self._gradient(_flat(x)))

    def minimizer(self) -> dict[str, np.ndarray]:
        """Return the x with grad l(x) = 0, by Newton's method from least squares."""
        design, target = self.moments[:, :-1, :-1], self.moments[:, :-1, -1]
        x = np.linalg.solve(design.mean(0), -target.mean(0))
        for _ in range(100):
            gradients = design @ x + target
            weights = self._worst_weights(x)[:, None, None]
            centered = gradients - gradients.mean(0)
            spread = centered.T @ centered / len(gradients) / self.penalty
            step = np.linalg.solve((weights * design).mean(0) + spread, self._gradient(x))
            x = x - step
        return _tree(x)

    def _losses(self, x: np.ndarray) -> np.ndarray:
        v = np.append(x, 1)
        return np.einsum("r,irs,s->i", v, self.moments, v) / 2

    def _worst_weights(self, x: np.ndarray) -> np.ndarray:
        losses = self._losses(x)
        return 1 + (losses - losses.mean()) / self.penalty

    def _gradient(self, x: np.ndarray) -> np.ndarray:
        gradients = self.moments[:, :-1] @ np.append(x, 1)
        return self._worst_weights(x) @ gradients / len(gradients)


def _flat(x: Tree) -> np.ndarray:
    return np.append(np.asarray(x["w"], float), float(x["b"]))


def _tree(x: np.ndarray) -> dict[str, np.ndarray]:
    return {"w": x[:-1], "b": x[-1]}


def predict(x: Tree, y: Tree, rows: Any) -> jax.Array:
    """Return the predictions of the shared model x."""
    return jnp.asarray(rows["a"]) @ x["w"] + x["b"]


def _mean_square(x: Tree, y: Tree, rows: Any) -> jax.Array:
    return jnp.mean((predict(x, y, rows) - rows["b"]) ** 2)


def robust_regression(
    train: Sequence[Tree],
    valid: Sequence[Tree],
    test: Sequence[Tree] | None = None,
    penalty: float = 1.0,
) -> RobustRegression:
    """Make a distributionally robust regression, the minimax problem g = -f.

        f_i = (1 + y_i - mean of y) l_i(x) - penalty/2 mean of y_j^2,    g_i = -f_i
        l_i = mean_r 1/2 (a_r'w + b - b_r)^2 over agent i's own rows, training and validation

    x = {"w": (p,), "b": ()} is one regression for all agents. y, common, holds one number per
    agent: an adversary who gives the weight 1 + y_i - mean of y to agent i, and pays for weights
    far from 1. y* and grad l have closed forms, and l(x) is the mean of the agents' losses plus
    their variance / (2 penalty). Weights are positive if no loss is `penalty` below the mean.

    Args:
        train, valid, test: rows {"a": features (n, p), "b": targets (n,)} per agent.
        penalty: price of weights far from 1, in the unit of l_i; a large one: least squares.

    Returns:
        The problem; its metric is the mean squared error on `test`.
    """
    if not 0 < penalty < float("inf"):
        raise ValueError(f"penalty = {penalty}; give a number above 0: weights have no limit")
    join = lambda t, v, k: np.concatenate([np.asarray(t[k]), np.asarray(v[k])])
    pairs = list(zip(train, valid, strict=True))
    own_rows = [{k: join(t, v, k) for k in "ab"} for t, v in pairs]
    agents, features = len(own_rows), np.shape(own_rows[0]["a"])[1]
    rows = [r | {"agent": np.full(len(r["b"]), i, np.int32)} for i, r in enumerate(own_rows)]

    def init(key: jax.Array) -> tuple[Tree, Tree]:
        return {"w": jnp.zeros(features), "b": jnp.zeros(())}, jnp.zeros(agents)

    def upper(x: Tree, y: Tree, rows: Any) -> jax.Array:
        weights = 1 + y[rows["agent"]] - jnp.mean(y)
        squares = (predict(x, y, rows) - rows["b"]) ** 2
        return jnp.mean(weights * squares) / 2 - penalty / 2 * jnp.mean(y**2)

    def lower(x: Tree, y: Tree, rows: Any) -> jax.Array:
        return -upper(x, y, rows)

    options: dict[str, Any] = {"lower_level": "common", "predict": predict}
    metrics = {"test_loss": _mean_square}
    problem = RobustRegression(upper, lower, init, rows, rows, test, metrics, **options)
    columns = [np.column_stack([r["a"], np.ones(len(r["b"])), -r["b"]]) for r in own_rows]
    problem.moments = np.stack([c.T @ c / len(c) for c in columns])
    problem.penalty = penalty
    return problem
