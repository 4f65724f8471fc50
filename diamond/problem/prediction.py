"""Predictions of a problem's models for new rows."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from ..core.pytrees import Tree

Predict = Callable[[Tree, Tree, Any], jax.Array]  # predict(x, y, rows)


def class_probabilities(scores: jax.Array) -> jax.Array:
    """Return the probabilities (n, q) of the classes of softmax scores."""
    return jax.nn.softmax(scores, axis=-1)


def unchanged(scores: jax.Array) -> jax.Array:
    """Return the scores themselves."""
    return scores


@dataclass(frozen=True)  # equal objects share compiled programs
class LinearPrediction:
    """Prediction from linear scores a'w + b of features a, y = w or {"w": w, "b": b}."""

    of_scores: Callable[[jax.Array], jax.Array] = class_probabilities

    def __call__(self, x: Tree, y: Tree, rows: Any) -> jax.Array:
        weights, intercept = self.coefficients(y)
        return self.of_scores(jnp.asarray(rows["a"]) @ weights + intercept)

    def coefficients(self, y: Tree) -> tuple[Any, Any]:
        """Return w and b."""
        return (y["w"], y["b"]) if isinstance(y, dict) else (y, 0.0)
