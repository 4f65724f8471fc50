"""Best point of a run: the evaluated point with the smallest upper loss, which is its answer."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from ..core import pytrees
from ..core.host_transfer import default_dtype
from ..core.pytrees import Tree

MOST_BYTES = 2**33  # of x and y of all agents: a second copy of larger ones is not stored
ROUNDING = 2.0  # units of rounding by which equal losses differ
SMALL_RISE = 1e-3  # of the whole decrease: a smaller rise is no worse
PREFIX = ".best"  # prefix of the arrays in a checkpoint


class BestPoint(NamedTuple):
    """Best point: the smallest finite `upper_loss`, at the mean of x; of equals, the later one.

    Losses that differ by rounding are equal. x and y are those of all agents, agents first. A run
    that rolled back may have passed its best point in the rounds that it discarded.
    """

    round: int
    upper_loss: float
    x: Tree
    y: Tree


def better_point(
    best: BestPoint | None,
    entry: Mapping[str, float],
    point: Callable[[], tuple[Tree, Tree]],
) -> BestPoint | None:
    """Return the better of the best point so far and the evaluation `entry` of x and y at `point`.

    Nothing is copied, since x and y are never modified.
    """
    value = entry.get("upper_loss", np.nan)
    if not np.isfinite(value):
        return best
    least = value if best is None else min(best.upper_loss, value)
    rounding = ROUNDING * float(jnp.finfo(default_dtype()).eps) * abs(value)
    return best if value > least + rounding else BestPoint(int(entry["round"]), least, *point())


def describe_answer(
    best: BestPoint | None, entries: Sequence[Mapping[str, float]], reason: str = ""
) -> str:
    """Say which round x and y are of; "" if that of the last evaluation is the best.

    Args:
        best: the best point, if there is one.
        entries: the evaluations.
        reason: why no best point is stored, if that is so for every evaluation.
    """
    last, loss = entries[-1], entries[-1].get("upper_loss")
    if loss is None:
        reason = "the upper loss is not measured"
    if best is None or loss is None:
        reason = reason or "the upper loss was never a number"
        return f"{reason}, so x and y are of the last round"
    if best.round == last["round"]:
        return ""
    answer = f"x and y are of round {best.round}, with an upper loss of {best.upper_loss:.4g}"
    if not np.isfinite(loss):
        return f"the upper loss of round {last['round']:.0f} is not a number; {answer}"
    start = next(entry["upper_loss"] for entry in entries if np.isfinite(entry["upper_loss"]))
    if loss - best.upper_loss <= SMALL_RISE * (start - best.upper_loss):
        return f"x and y are of round {best.round}, where the upper loss is smallest"
    worse = "no round is better than the start" if best.round == 0 else "the upper loss got worse"
    after = f" after round {best.round}" if best.round else ""
    return f"{worse}{after} ({loss:.4g} in round {last['round']:.0f}); {answer}"


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
