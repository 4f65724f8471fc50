"""Best point of a run: the evaluated point with the smallest upper loss."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from ..core import pytrees
from ..core.pytrees import Tree

LOSS_MEASURES = ("upper_loss", "local_loss")  # the first one that a run measures is used
PREFIX = ".best"  # prefix of the arrays in a checkpoint


class BestPoint(NamedTuple):
    """Best point: `upper_loss` is l(xbar), x and y are those of all agents, agents first.

    If a run measures no upper loss, the smallest `local_loss` is used. A run that rolled back may
    have passed its best point in the rounds that it discarded.
    """

    round: int
    upper_loss: float
    x: Tree
    y: Tree


def better_point(
    best: BestPoint | None, entry: Mapping[str, float], x: Tree, y: Tree
) -> BestPoint | None:
    """Return the better of the best point so far and a new evaluation; of equals, the earlier.

    Nothing is copied, since x and y are never modified.
    """
    value = next((entry[name] for name in LOSS_MEASURES if name in entry), np.nan)
    if np.isnan(value) or (best is not None and best.upper_loss <= value):
        return best
    return BestPoint(int(entry["round"]), value, x, y)


def to_arrays(best_point: BestPoint | None) -> dict[str, Any]:
    """Return the arrays by name, for a checkpoint."""
    if best_point is None:
        return {}
    return {
        f"{PREFIX}{name}": np.asarray(leaf)
        for name, leaf in pytrees.named_leaves(best_point).items()
    }


def from_arrays(x: Tree, y: Tree, arrays: Mapping[str, Any]) -> BestPoint | None:
    """Restore the output of `arrays` in trees like x and y; None if there is none."""
    if f"{PREFIX}.round" not in arrays:
        return None
    read_number = lambda name: np.asarray(arrays[f"{PREFIX}.{name}"]).item()
    restore_tree = lambda name, tree: pytrees.from_named_leaves(
        tree, {leaf: arrays.get(f"{PREFIX}.{name}{leaf}") for leaf in pytrees.named_leaves(tree)}
    )
    return BestPoint(
        read_number("round"), read_number("upper_loss"), restore_tree("x", x), restore_tree("y", y)
    )
