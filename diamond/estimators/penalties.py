"""Penalties that all sites share: one log-penalty per group of features."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..core.pytrees import Tree
from ..gallery.feature_penalties import PenalizedLoss

START = 0.1  # first penalty of a standardized feature
RANGE = float(np.log(1e4))  # penalties are between START / 10,000 and START * 10,000


@dataclass(frozen=True)  # equal objects share compiled programs
class GroupedPenalties:
    """`loss` as a function of one log-penalty per group; groups[r] is the group of feature r."""

    loss: PenalizedLoss
    groups: tuple[int, ...]

    @property
    def size(self) -> int:
        """Number of entries of x."""
        return (max(self.groups) + 1) * (1 if self.loss.smoothing is None else 2)

    def log_penalties(self, penalty: float, coefficients: int) -> np.ndarray:
        """Return x of one penalty for all features: 1/2 penalty w^2, and penalty |w|.

        `PenalizedLoss` has the means of squares and absolute values over the coefficients.
        """
        x = np.full(self.size, np.log(penalty * coefficients))
        x[: max(self.groups) + 1] -= np.log(2)
        return x

    def by_feature(self, x: Any) -> Any:
        """Return the log-penalties of the features: of squares, then of absolute values."""
        groups = np.array(self.groups)
        shift = max(self.groups) + 1
        return x[groups if self.loss.smoothing is None else np.append(groups, groups + shift)]

    def __call__(self, x: Tree, y: Tree, rows: Any) -> jax.Array:
        return self.loss(self.by_feature(x), y, rows)


@dataclass(frozen=True)
class BoundedPenalties:
    """`loss` as a function of any x, whose log-penalties are start + range tanh(x / range).

    Without bounds, penalties of noise grow for ever, and those of separable classes fall for ever.
    """

    loss: GroupedPenalties
    coefficients: int

    def log_penalties(self, x: Any) -> Any:
        """Return the log-penalties of x."""
        start = self.loss.log_penalties(START, self.coefficients)
        return start + RANGE * jnp.tanh(x / RANGE)

    def __call__(self, x: Tree, y: Tree, rows: Any) -> jax.Array:
        return self.loss(self.log_penalties(x), y, rows)


def group_features(
    penalties: str | Mapping[Any, Any] | Sequence[Any], names: Sequence[Any], size: int
) -> tuple[int, ...]:
    """Return the number of the penalty of each feature.

    Args:
        penalties: "feature", "shared", a label per feature, or a mapping from names of features
            to labels. Features that the mapping does not name have penalties of their own.
        names: names of the features, or their numbers.
        size: number of columns; columns without a name are 0, and any penalty will do.
    """
    if isinstance(penalties, str):
        if penalties not in ("feature", "shared"):
            raise ValueError(
                f"penalties = {penalties!r}; give 'feature', 'shared', or labels of the features"
            )
        labels: list[Any] = [*range(len(names))] if penalties == "feature" else [0] * len(names)
    elif isinstance(penalties, Mapping):
        if unknown := [name for name in penalties if name not in {*names}]:
            raise ValueError(
                f"penalties has a label for {unknown[0]!r}, which is no feature of X; the features "
                f"are {', '.join(map(str, names[:10]))}{', ...' * (len(names) > 10)}"
            )
        labels = [(True, penalties[n]) if n in penalties else (False, n) for n in names]
    else:
        labels = np.asarray(penalties).tolist()
        if len(labels) != len(names):
            raise ValueError(
                f"penalties has {len(labels)} labels for {len(names)} features; give one each"
            )
    numbers = {label: number for number, label in enumerate(dict.fromkeys(labels))}
    groups = tuple(numbers[label] for label in labels)
    return (
        (*range(size),) if len(numbers) == len(names) > 1 else groups + (0,) * (size - len(names))
    )
