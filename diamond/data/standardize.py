"""Standardization of features by sites that share only sums and counts."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..core.suggestions import did_you_mean
from .dataset import DataError


class FeatureScale(NamedTuple):
    """Scaling (a - mean) / deviation of each feature."""

    mean: NDArray[np.float64]
    deviation: NDArray[np.float64]

    def __call__(self, features: NDArray[Any]) -> NDArray[np.float32]:
        return ((features - self.mean) / self.deviation).astype(np.float32)


def federated_scale(sites: Sequence[NDArray[Any]]) -> FeatureScale:
    """Compute the scale over all rows of all sites: each shares n and sum a, then sum (a - mean)^2.

    A constant feature is divided by 1.
    """
    sums = [(len(rows_of_site), rows_of_site.sum(0, dtype=np.float64)) for rows_of_site in sites]
    rows = sum(n for n, _ in sums)
    mean = np.sum([total for _, total in sums], axis=0) / rows
    squares = [((rows_of_site - mean) ** 2).sum(0, dtype=np.float64) for rows_of_site in sites]
    deviation = np.sqrt(np.sum(squares, axis=0) / rows)
    return FeatureScale(mean, np.where(deviation > 0, deviation, 1.0))


def parse_scale(pairs_by_name: Mapping[str, Sequence[float]], names: Sequence[str]) -> FeatureScale:
    """Read the scale from [mean, deviation] by feature name; other features are unchanged."""
    for name, pair in pairs_by_name.items():
        if name not in names:
            raise DataError(f"scale: no feature {name!r}; {did_you_mean(name, names)}")
        if len(pair) != 2 or not (np.isfinite(pair).all() and pair[1] > 0):
            raise DataError(
                f"scale: {name} = {list(pair)}; give its mean and a deviation above 0, as in "
                f"{name} = [50.0, 15.0]"
            )
    pairs = np.array([pairs_by_name.get(name, (0.0, 1.0)) for name in names], float).reshape(-1, 2)
    return FeatureScale(pairs[:, 0], pairs[:, 1])
