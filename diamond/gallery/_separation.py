"""Measure of how well scores separate two kinds of rows or sources."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


def auc(scores: Any, is_right: np.ndarray) -> jax.Array:
    """Return the probability that a right entry has a larger score than a wrong one; ties: 1/2."""
    wrong = jnp.sort(scores[~is_right])
    right = scores[is_right]
    below, not_above = (jnp.searchsorted(wrong, right, side) for side in ("left", "right"))
    return jnp.mean((below + not_above) / (2.0 * wrong.size))
