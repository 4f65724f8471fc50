"""The best point that a run came by: the one with the smallest upper loss among those measured."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from ..core import tree
from ..core.tree import Tree

MEASURES = ("upper_loss", "local_loss")  # the first that a run measures
PLACE = ".best"  # its arrays among those of a checkpoint


class Best(NamedTuple):
    """Where it was: l(xbar) is `upper_loss` there, x and y are those of all agents, agents first.

    A run that measures no upper loss has the least `local_loss` in its place.

    A run that went back to go on with smaller steps may have met it on the way that it gave up.
    """

    round: int
    upper_loss: float
    x: Tree
    y: Tree


def better(best: Best | None, entry: Mapping[str, float], x: Tree, y: Tree) -> Best | None:
    """The better of the best so far and the point of a new evaluation; of equals, the earlier.

    Nothing is copied: x and y are never written to.
    """
    value = next((entry[name] for name in MEASURES if name in entry), np.nan)
    if np.isnan(value) or (best is not None and best.upper_loss <= value):
        return best
    return Best(int(entry["round"]), value, x, y)


def arrays(best: Best | None) -> dict[str, Any]:
    """By name, for a checkpoint."""
    if best is None:
        return {}
    return {f"{PLACE}{name}": np.asarray(leaf) for name, leaf in tree.named(best).items()}


def restored(x: Tree, y: Tree, found: Mapping[str, Any]) -> Best | None:
    """What `arrays` named, in trees like x and y; None where there is none."""
    if f"{PLACE}.round" not in found:
        return None
    number = lambda name: np.asarray(found[f"{PLACE}.{name}"]).item()
    part = lambda name, like: tree.like(
        like, {leaf: found.get(f"{PLACE}.{name}{leaf}") for leaf in tree.named(like)}
    )
    return Best(number("round"), number("upper_loss"), part("x", x), part("y", y))
