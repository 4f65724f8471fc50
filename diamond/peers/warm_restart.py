"""Warm restart: a new run from the last points of an old one, if a site has lost its state.

Every site keeps its x and y; everything else starts as in any run. Trackers do too: u_i = p_i at
the first gradients, so that sum u = sum p from the first round on, wherever the x_i are. A site
that has lost its x starts at the mean of its neighbours' x, with the usual initial y.
"""

import re
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from ..core import pytrees
from ..core.pytrees import Tree
from ..records import checkpoint
from ..records.checkpoint import Damaged
from ..records.folder_recovery import unused
from .site_checkpoint import STATES, OtherRun

START = "start"  # subfolder with a checkpoint of round 0
OWN = re.compile(r"\.state(\.[xy](?!\w).*)", re.DOTALL)
TALK = 2**31 - 1  # number of the last message before round 0


class Point(NamedTuple):
    """Last point of a site."""

    x: Tree
    y: Tree


def prepare(folder: Path) -> Path | None:
    """Set the folder aside and create a new one from its last point; return the old one's path."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    fresh = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    checkpoint.save(fresh / START, 0, _last(folder), {})
    aside = unused(folder) if folder.exists() else None
    if aside is not None:
        folder.rename(aside)
    fresh.rename(folder)
    return aside


def _last(folder: Path) -> dict[str, np.ndarray]:
    """Return x and y of the newest complete checkpoint or of the start; empty if lost."""
    try:
        found = checkpoint.newest(folder / STATES).arrays
        return {own[1]: a for name, a in found.items() if (own := OWN.fullmatch(name))}
    except Damaged:
        pass
    try:
        return checkpoint.load(folder / START, 0).arrays
    except Damaged:
        return {}


def begun(folder: Path | None) -> bool:
    """Return whether the run of that folder is a warm restart."""
    return folder is not None and (folder / START).exists()


def point(folder: Path, like: Any) -> Point | None:
    """Return the initial point of this site; None if it is lost. `like` is a state."""
    try:
        found = checkpoint.load(folder / START, 0).arrays
        return pytrees.like(Point(like.x, like.y), found) if found else None
    except Damaged as cause:
        raise OtherRun(
            f"{cause}: start this site once more with --onward, before the others are far"
        ) from None
    except ValueError as cause:
        raise OtherRun(f"{folder / START}: {cause}; start all sites with --restart") from None


def told(own: Point | None, like: Tree) -> list[np.ndarray]:
    """Return the message to the neighbours: whether this site has an x, and x."""
    leaves = jax.tree.leaves(like if own is None else own.x)
    has = np.array([own is not None], np.float32)
    return [has, *(np.asarray(leaf) for leaf in leaves)]


def mean(heard: list[list[np.ndarray]], like: Tree) -> Tree:
    """Return the mean x of the neighbours that have one; `like`, the usual start, if none has."""
    having = [leaves for (has, *leaves) in heard if has[0] == 1]
    if not having:
        return like
    means = [np.mean(one, axis=0, dtype=one[0].dtype) for one in zip(*having)]
    return jax.tree.unflatten(jax.tree.structure(like), [jax.numpy.asarray(one) for one in means])
