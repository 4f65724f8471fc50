"""The digest of a trajectory: two runs with the same one went the same way, bit by bit."""

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from .. import tree
from ..tree import Tree

TIMES = ("seconds", "waited")
LEVELS = re.compile(r"\.state\.([xy])(?!\w)(.*)", re.DOTALL)  # x and y in a checkpoint


def digest(lines: list[dict[str, Any]], x: Tree, y: Tree) -> str:
    """sha256 of every evaluation but for its times, and of the final x and y of all agents."""
    leaves = {
        f"{level}{name}": leaf
        for level, part in (("x", x), ("y", y))
        for name, leaf in tree.named(part).items()
    }
    return _digest(lines, leaves)


def stored(lines: list[dict[str, Any]], arrays: Mapping[str, np.ndarray]) -> str:
    """The same, from the arrays of the last checkpoint."""
    found = [(LEVELS.fullmatch(name), leaf) for name, leaf in arrays.items()]
    return _digest(lines, {match[1] + match[2]: leaf for match, leaf in found if match})


def _digest(lines: list[dict[str, Any]], leaves: Mapping[str, Any]) -> str:
    hashed = hashlib.sha256()
    for line in lines:
        kept = {name: value for name, value in line.items() if name not in TIMES}
        hashed.update(json.dumps(kept, sort_keys=True).encode() + b"\n")
    for name in sorted(leaves):
        leaf = np.asarray(leaves[name], order="C")
        hashed.update(f"{name} {leaf.dtype} {leaf.shape}\n".encode() + leaf.tobytes())
    return hashed.hexdigest()
