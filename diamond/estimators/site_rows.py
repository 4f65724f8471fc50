"""Rows of a table by site: their split, their units, and arrays of rounded sizes."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import count
from typing import Any, NamedTuple, Protocol

import jax
import numpy as np
from sklearn.utils import check_random_state

from ..core import host_transfer
from ..core.pytrees import Tree
from ..core.validation import as_int
from ..problem import Problem
from ..problem.stored_rows import Rows

FEWEST_ROWS, FEWEST_FEATURES = 128, 16  # of an array


class Units(NamedTuple):
    """Means and standard deviations of the features over the rows of all sites."""

    mean: np.ndarray
    deviation: np.ndarray  # 1 for a constant feature

    def standardize(self, X: np.ndarray) -> np.ndarray:
        """Return the features in units of their deviations, with columns of 0 to a rounded size."""
        padding = rounded_size(X.shape[1], FEWEST_FEATURES) - X.shape[1]
        return np.pad((X - self.mean) / self.deviation, [(0, 0), (0, padding)])


def measure_units(X: np.ndarray, weight: np.ndarray | None = None) -> Units:
    """Return the units of a table whose rows have weights.

    Sites would share the sums of each feature and of its square, and nothing else.
    """
    mean = np.average(X, 0, weight)
    deviation = np.sqrt(np.average((X - mean) ** 2, 0, weight))
    is_constant = deviation <= 10 * np.finfo(float).eps * np.abs(mean)
    return Units(mean, np.where(is_constant, 1.0, deviation))


def choose_validation_rows(
    site: np.ndarray, strata: np.ndarray, fraction: float, random: np.random.RandomState
) -> np.ndarray:
    """Return which rows are validation rows: about `fraction` of each site and stratum.

    One row of each stratum of a site is always a training row, so that no class is met in
    validation only. Every site has at least one validation row, if it has a row left.
    """
    is_validation = np.zeros(len(site), bool)
    for number in range(site.max() + 1):
        rows = random.permutation(np.flatnonzero(site == number))
        rows = rows[np.argsort(strata[rows], kind="stable")]
        _, firsts = np.unique(strata[rows], return_index=True)
        rest = np.delete(rows, firsts)
        chosen = min(max(1, round(fraction * len(rows))), len(rest))
        is_validation[
            rest[((np.arange(chosen) + 0.5) * len(rest) / max(chosen, 1)).astype(int)]
        ] = 1
    return is_validation


class SplitParameters(Protocol):
    """Parameters of the splits of each site's rows into training and validation rows."""

    n_splits: int
    validation_fraction: float
    random_state: Any


class SplitRows(NamedTuple):
    """Training and validation rows of each site in each split, split by split."""

    train: list[Tree]
    valid: list[Tree]
    first_train: np.ndarray  # which rows of the table are training rows of the first split


def split_rows(
    parameters: SplitParameters,
    rows: dict[str, np.ndarray],
    site: np.ndarray,
    strata: np.ndarray,
    names: np.ndarray,
) -> SplitRows:
    """Split the rows of each site several times; every site has validation rows."""
    fraction = parameters.validation_fraction
    if not 0 < fraction < 1:
        raise ValueError(
            f"validation_fraction = {fraction!r}; give the share of validation rows, between 0 "
            f"and 1"
        )
    number = as_int("n_splits", parameters.n_splits, 1)
    random = check_random_state(parameters.random_state)
    valid = [choose_validation_rows(site, strata, fraction, random) for _ in range(number)]
    if (counts := np.bincount(site, valid[0])).min() < 1:
        first = int(np.argmin(counts))
        raise ValueError(
            f"site {names.tolist()[first]!r} has {np.sum(site == first)} row(s), which leaves none "
            f"to validate on; give this site more rows, or merge the site with another"
        )
    train = [~mask for mask in valid]
    return SplitRows(by_site(rows, site, *train), by_site(rows, site, *valid), train[0])


def by_site(rows: dict[str, np.ndarray], site: np.ndarray, *masks: np.ndarray) -> list[Tree]:
    """Return the rows in each mask of each site."""
    selected = [mask & (site == i) for mask in masks for i in range(int(site.max()) + 1)]
    return [{name: a[choice] for name, a in rows.items()} for choice in selected]


def rounded_size(size: int, least: int = FEWEST_ROWS) -> int:
    """Return the next of `least` times 1, 1.5, 2, 3, 4, 6, 8, ...: such tables share programs."""
    sizes = (least * (2 + half) << k >> 1 for k in count() for half in (0, 1))
    return next(rounded for rounded in sizes if rounded >= size)


def padded_count(count: int) -> int:
    """Return the length of an array for `count` rows; one row, a whole table, stays one."""
    return rounded_size(count) if count > 1 else 1


class TableProblem(Problem):
    """A problem whose arrays have rounded numbers of rows; repeated rows do not count."""

    def stack_rows(self, part: str, batch: int, agents: Any) -> Rows:
        rows = super().stack_rows(part, batch, agents)

        def repeat(a: Any) -> jax.Array:
            count = a.shape[1]
            padded = np.take(np.asarray(a), np.arange(padded_count(count)) % count, axis=1)
            return host_transfer.to_device(padded)

        return replace(rows, data=jax.tree.map(repeat, rows.data))


def stack_all(agents: Sequence[Tree]) -> Rows:
    """Return the rows of all sites as arrays of a rounded length."""
    counts = np.array([len(jax.tree.leaves(rows)[0]) for rows in agents], np.int32)
    length = padded_count(int(counts.max()))
    repeat = lambda a: np.take(a, np.arange(length) % len(a), axis=0)
    stack = lambda *leaves: host_transfer.to_device(np.stack([*map(repeat, leaves)]))
    return Rows(jax.tree.map(stack, *agents), host_transfer.to_device(counts), 1)
