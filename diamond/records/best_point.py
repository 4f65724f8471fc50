"""Best point of a run: the evaluated point with the smallest upper loss."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from ..core import pytrees
from ..core.pytrees import Tree

MEASURES = ("upper_loss", "local_loss")  # the first one that a run measures is used
PLACE = ".best"  # prefix of the arrays in a checkpoint


class Best(NamedTuple):
    """Best point: `upper_loss` is l(xbar), x and y are those of all agents, agents first.

    If a run measures no upper loss, the smallest `local_loss` is used. A run that rolled back may
    have passed its best point in the rounds that it discarded.
    """

    round: int
    upper_loss: float
    x: Tree
    y: Tree


def better(best: Best | None, entry: Mapping[str, float], x: Tree, y: Tree) -> Best | None:
    """Return the better of the best point so far and a new evaluation; of equals, the earlier.

    Nothing is copied, since x and y are never modified.
    """
    value = next((entry[name] for name in MEASURES if name in entry), np.nan)
    if np.isnan(value) or (best is not None and best.upper_loss <= value):
        return best
    return Best(int(entry["round"]), value, x, y)


def arrays(best: Best | None) -> dict[str, Any]:
    """Return the arrays by name, for a checkpoint."""
    if best is None:
        return {}
    return {f"{PLACE}{name}": np.asarray(leaf) for name, leaf in pytrees.named(best).items()}


def restored(x: Tree, y: Tree, found: Mapping[str, Any]) -> Best | None:
    """Restore the output of `arrays` in trees like x and y; None if there is none."""
    if f"{PLACE}.round" not in found:
        return None
    number = lambda name: np.asarray(found[f"{PLACE}.{name}"]).item()
    part = lambda name, like: pytrees.like(
        like, {leaf: found.get(f"{PLACE}.{name}{leaf}") for leaf in pytrees.named(like)}
    )
    return Best(number("round"), number("upper_loss"), part("x", x), part("y", y))
