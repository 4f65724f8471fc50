"""Digest of a trajectory: runs with equal digests agree bit by bit."""

import hashlib
import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from ..core import pytrees
from ..core.pytrees import Tree
from .digest_chain import chain_digest

LEVELS = re.compile(r"\.state\.([xy])(?!\w)(.*)", re.DOTALL)  # names of x and y in a checkpoint


def digest_trajectory(lines: list[dict[str, Any]], x: Tree, y: Tree) -> str:
    """Compute SHA-256 of every evaluation without its times, and of the final x and y."""
    return digest_from_chain(chain_digest(lines), x, y)


def digest_from_chain(chain: str, x: Tree, y: Tree) -> str:
    """Compute the same digest from the output of `chain_digest` for the evaluations."""
    leaves = {
        f"{level}{name}": leaf
        for level, part in (("x", x), ("y", y))
        for name, leaf in pytrees.named_leaves(part).items()
    }
    return _digest(chain, leaves)


def digest_checkpoint(lines: list[dict[str, Any]], arrays: Mapping[str, np.ndarray]) -> str:
    """Compute the digest from the arrays of the last checkpoint."""
    matches = [(LEVELS.fullmatch(name), leaf) for name, leaf in arrays.items()]
    return _digest(
        chain_digest(lines), {match[1] + match[2]: leaf for match, leaf in matches if match}
    )


def _digest(chain: str, leaves: Mapping[str, Any]) -> str:
    hashed = hashlib.sha256(chain.encode())
    for name in sorted(leaves):
        leaf = np.asarray(leaves[name], order="C")
        hashed.update(f"{name} {leaf.dtype} {leaf.shape}\n".encode() + leaf.tobytes())
    return hashed.hexdigest()
