"""Digest of a trajectory: runs with equal digests agree bit by bit."""

import hashlib
import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from ..core import pytrees
from ..core.pytrees import Tree
from .digest_chain import follow

LEVELS = re.compile(r"\.state\.([xy])(?!\w)(.*)", re.DOTALL)  # names of x and y in a checkpoint


def digest(lines: list[dict[str, Any]], x: Tree, y: Tree) -> str:
    """Compute SHA-256 of every evaluation without its times, and of the final x and y."""
    return final(follow(lines), x, y)


def final(chain: str, x: Tree, y: Tree) -> str:
    """Compute the same digest from the output of `follow` for the evaluations."""
    leaves = {
        f"{level}{name}": leaf
        for level, part in (("x", x), ("y", y))
        for name, leaf in pytrees.named(part).items()
    }
    return _digest(chain, leaves)


def stored(lines: list[dict[str, Any]], arrays: Mapping[str, np.ndarray]) -> str:
    """Compute the digest from the arrays of the last checkpoint."""
    found = [(LEVELS.fullmatch(name), leaf) for name, leaf in arrays.items()]
    return _digest(follow(lines), {match[1] + match[2]: leaf for match, leaf in found if match})


def _digest(chain: str, leaves: Mapping[str, Any]) -> str:
    hashed = hashlib.sha256(chain.encode())
    for name in sorted(leaves):
        leaf = np.asarray(leaves[name], order="C")
        hashed.update(f"{name} {leaf.dtype} {leaf.shape}\n".encode() + leaf.tobytes())
    return hashed.hexdigest()
