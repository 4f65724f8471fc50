"""Warm restart: a new run from the last points of an old one, if a site has lost its state.

Every site keeps its x and y; everything else starts as in any run. Trackers do too: u_i = p_i at
the first gradients, so that sum u = sum p from the first round on, wherever the x_i are. A site
that has lost its x starts at the mean of its neighbours' x, with the usual initial y.
"""

import re
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from ...core import pytrees
from ...core.pytrees import Tree
from ...interface.member_changes import mean_point
from ...records import checkpoint_file
from ...records.checkpoint_file import DamagedCheckpoint
from ...records.folder_recovery import unused_path
from ..memory.site_checkpoint import STATE_FOLDER, OtherRun

START_FOLDER = "start"  # subfolder with a checkpoint of round 0
POINT_KEY = re.compile(r"\.state(\.[xy](?!\w).*)", re.DOTALL)
POINT_STEP = 2**31 - 1  # number of the last message before round 0


class RestartPoint(NamedTuple):
    """Last point of a site."""

    x: Tree
    y: Tree


def prepare_folder(folder: Path) -> Path | None:
    """Set the folder aside and create a new one from its last point; return the old one's path."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    fresh = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    checkpoint_file.save(fresh / START_FOLDER, 0, _last_point(folder), {})
    aside = unused_path(folder) if folder.exists() else None
    if aside is not None:
        folder.rename(aside)
    fresh.rename(folder)
    return aside


def _last_point(folder: Path) -> dict[str, np.ndarray]:
    """Return x and y of the newest complete checkpoint or of the start; empty if lost."""
    with suppress(DamagedCheckpoint):
        arrays = checkpoint_file.load_newest(folder / STATE_FOLDER).arrays
        return {match[1]: a for name, a in arrays.items() if (match := POINT_KEY.fullmatch(name))}
    with suppress(DamagedCheckpoint):
        return checkpoint_file.load(folder / START_FOLDER, 0).arrays
    return {}


def is_warm_restart(folder: Path | None) -> bool:
    """Return whether the run of that folder is a warm restart."""
    return folder is not None and (folder / START_FOLDER).exists()


def load_point(folder: Path, like: Any) -> RestartPoint | None:
    """Return the initial point of this site; None if it is lost. `like` is a state."""
    try:
        arrays = checkpoint_file.load(folder / START_FOLDER, 0).arrays
        return pytrees.from_named_leaves(RestartPoint(like.x, like.y), arrays) if arrays else None
    except DamagedCheckpoint as cause:
        raise OtherRun(
            f"{cause}: start this site again with --onward, before the others are far ahead"
        ) from None
    except ValueError as cause:
        raise OtherRun(
            f"{folder / START_FOLDER}: {cause}; start all sites with --restart"
        ) from None


def outgoing_arrays(point: RestartPoint | None, like: Tree) -> list[np.ndarray]:
    """Return the message to the neighbours: whether this site has an x, and x."""
    leaves = jax.tree.leaves(like if point is None else point.x)
    has = np.array([point is not None], np.float32)
    return [has, *(np.asarray(leaf) for leaf in leaves)]


def mean_of_neighbours(messages: list[list[np.ndarray]], like: Tree) -> Tree:
    """Return the mean x of the neighbours that have one; `like`, the usual start, if none has."""
    return mean_point([leaves for (has, *leaves) in messages if has[0] == 1], like)
