"""Messages on the disk, each written once: one file for those told between two checkpoints.

A file is written under another name, forced to the disk and renamed, before the checkpoint that
counts on it is. It goes once no neighbour may ask for anything in it, and no checkpoint that is
kept ends in it. In memory are then the messages since the last checkpoint only.
"""

import os
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..runs import checkpoint
from ..runs.checkpoint import Damaged
from ..runs.recovery import unused
from . import frame
from .audit import LOG
from .frame import FrameError

LENGTH = struct.Struct("<Q")
Key = tuple[int, int]  # round and talk


class Written(NamedTuple):
    """Where a message lies on the disk."""

    path: Path
    start: int
    length: int

    def read(self) -> np.ndarray:
        """The bytes of the message; whoever gets them checks them."""
        return np.fromfile(self.path, np.uint8, self.length, offset=self.start)


def save(folder: Path, round: int, frames: Mapping[Key, Any]) -> dict[Key, Written]:
    """Write those that are in memory only; where each of them is now."""
    fresh = {key: content for key, content in frames.items() if not isinstance(content, Written)}
    path, parts, found, start = _file(folder, round), [], {}, 0
    for key, content in fresh.items():
        parts += [LENGTH.pack(len(content)), content]
        found[key] = Written(path, start + LENGTH.size, len(content))
        start += LENGTH.size + len(content)
    folder.mkdir(parents=True, exist_ok=True)
    checkpoint.replace(path, *parts)
    return found


def counts(frames: Mapping[Key, Any]) -> dict[str, int]:
    """How many of the messages are in each file: what a checkpoint counts on."""
    found: dict[str, int] = {}
    for place in frames.values():
        found[place.path.stem] = found.get(place.path.stem, 0) + 1
    return found


def load(
    folder: Path, round: int, counted: Mapping[str, int], run: str
) -> tuple[dict[Key, Written], bool]:
    """What a checkpoint of `round` counts on, and whether all is there.

    Raises `Damaged` if its own file is: from the checkpoint before, its messages are told again.
    Those of earlier files are not: what is damaged of them is set aside.
    """
    found: dict[Key, Written] = {}
    whole = True
    for stem, count in counted.items():
        path = _file(folder, int(stem))
        try:
            kept = _read(path, run)
            if len(kept) < count:
                raise Damaged(f"{path}: {len(kept)} messages where {count} were written")
            found |= kept
        except (OSError, FrameError, Damaged) as cause:
            whole = False
            if int(stem) == round:
                raise Damaged(f"{path}: not what was written ({cause})") from None
            if path.exists():  # else it went when nobody could want it any more
                os.rename(path, unused(path))
                LOG.warning(f"{path} is damaged ({cause}): no neighbour can be set back so far")
    return found, whole


def prune(folder: Path, wanted: set[str]) -> None:
    """Remove the files that nothing counts on."""
    for path in folder.glob("[0-9]*.log*"):
        if path.suffix in (".log", ".tmp") and path.name.split(".")[0] not in wanted:
            path.unlink()


def _file(folder: Path, round: int) -> Path:
    return folder / f"{round:010d}.log"


def _read(path: Path, run: str) -> dict[Key, Written]:
    """Every message of a file, by round and talk, each found to be sound."""
    content, start, found = path.read_bytes(), 0, {}
    view = memoryview(content)
    while start < len(content):
        if start + LENGTH.size > len(content):
            raise FrameError("cut short")
        (length,) = LENGTH.unpack_from(content, start)
        start += LENGTH.size
        if start + length > len(content):
            raise FrameError("cut short")
        header, _ = frame.unpack(view[start : start + length], len(content))
        if header.get("run") != run:
            raise FrameError("of another run")
        found[header["round"], header["talk"]] = Written(path, start, length)
        start += length
    return found
