"""Limits of rollbacks: when x and y count as broken, and which saved state a run returns to."""

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from ..core import host_transfer
from ..core.pytrees import Tree

STEP_DECREASE = 0.25  # of the steps per rollback
MOST_SHRINKS = 8  # most rollbacks if x or y breaks
SAVE_EVERY, SAVED_STATES = 100, 2  # period and number of the latest states saved for rollbacks
TOO_LARGE = 1e2  # times the start: size of x and y that excludes a state from rollbacks
EXPLODED = 1e6  # times the start: counts as broken though finite
GROWTH = 3.0  # growth since the last saved state with which a large state is broken


def largest_norm(point: Tree) -> float:
    """Return the largest norm of (x, y) over the agents (first axis)."""
    leaves = jax.tree.leaves(host_transfer.to_host(point))
    with np.errstate(over="ignore"):  # overflow to infinity is a valid size
        squares: Any = sum((leaf.reshape(len(leaf), -1) ** 2).sum(1) for leaf in leaves)
        return float(squares.max()) ** 0.5


def has_exploded(size: float, start: float, last_size: float) -> bool:
    """Return whether x and y of size `size` count as broken, though finite.

    `start` and `last_size` are the sizes at the start and in the last saved state, or now if there
    is none. x and y may be large, as for small data, and are broken only if they keep growing.
    """
    return not size < max(EXPLODED * (1 + start), GROWTH * last_size)


def rollback_index(sizes: Sequence[float], start: float) -> int:
    """Return the index of the saved state to roll back to: the last not large one, or -1.

    `sizes` are those of the saved states, `start` is the size of the start.
    """
    usable = [i for i, size in enumerate(sizes) if size < TOO_LARGE * (1 + start)]
    return usable[-1] if usable else -1


def next_step_scale(scale: float) -> float | None:
    """Return the next smaller scale of the steps; None if steps have been shrunk often enough."""
    smaller = scale * STEP_DECREASE
    return None if smaller < STEP_DECREASE**MOST_SHRINKS else smaller
