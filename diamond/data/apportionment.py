"""Integer shares, seeded generators and checks that all partitions use."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..core.validation import as_int
from .dataset import DataError


def apportion(n: int, weights: NDArray[np.float64]) -> NDArray[np.int64]:
    """Divide n into integer shares by the largest-remainder method."""
    if not (np.isfinite(weights).all() and (weights > 0).all()):
        raise DataError(f"shares {weights.tolist()}; give finite numbers above 0")
    exact = n * (weights / weights.sum())
    sizes = np.floor(exact).astype(np.int64)
    # Stable, so that ties favour the first; rounding leaves n short by a few at most.
    sizes[np.argsort(sizes - exact, kind="stable")[: n - sizes.sum()]] += 1
    return sizes


def generator(seed: int, *more: int) -> np.random.Generator:
    """Make the generator of a seed and further counters."""
    if check_int("seed", seed) < 0:
        raise DataError(f"seed {seed}; give a whole number from 0")
    return np.random.default_rng([seed, *more])


def check_int(name: str, value: int) -> int:
    """Validate that `value` is an integer."""
    try:
        return as_int(name, value)
    except ValueError as cause:
        raise DataError(str(cause)) from None


def count_rows(labels_or_n: ArrayLike) -> int:
    """Count the rows, given their number or their labels."""
    values = np.asarray(labels_or_n)
    if values.ndim == 0 and values.dtype.kind in "iu":
        return int(values)
    return len(label_vector(values))


def label_vector(labels: ArrayLike) -> NDArray[Any]:
    """Return the labels as one vector."""
    vector = np.asarray(labels)
    if vector.ndim != 1:
        raise DataError(f"labels of shape {vector.shape}; give one label a row")
    return vector


def check_enough_rows(n: int, agents: int, minimum: int = 1) -> None:
    """Refuse more agents than the rows suffice for."""
    if check_int("agents", agents) < 1:
        raise DataError(f"{agents} agents; give at least 1")
    if n < 1:
        raise DataError("no rows to deal out; give at least 1")
    if n < agents * minimum:
        most_agents = n // minimum
        at_least = f", at least {minimum} each" if minimum > 1 else ""
        raise DataError(
            f"agent {most_agents} would get {n - most_agents * minimum} rows: {n} rows over "
            f"{agents} agents{at_least}; use at most {most_agents} agents"
        )
