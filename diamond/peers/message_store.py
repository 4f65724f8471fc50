"""Messages on the disk, each written once: one file per interval between checkpoints.

A file is written under another name, flushed and renamed before the checkpoint that needs it. It is
removed once no neighbour may request its messages and no kept checkpoint ends in it. Memory then
holds only the messages since the last checkpoint.
"""

import os
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..records import checkpoint
from ..records.checkpoint import Damaged
from ..records.folder_recovery import unused
from . import wire_format
from .audit import LOG
from .wire_format import FrameError

LENGTH = struct.Struct("<Q")
Key = tuple[int, int]  # round and talk


class Written(NamedTuple):
    """Location of a message on the disk."""

    path: Path
    start: int
    length: int

    def read(self) -> np.ndarray:
        """Read the bytes of the message; the receiver verifies them."""
        return np.fromfile(self.path, np.uint8, self.length, offset=self.start)


def save(folder: Path, round: int, frames: Mapping[Key, Any]) -> dict[Key, Written]:
    """Write the messages that are in memory only; return their locations."""
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
    """Count the messages in each file, for the checkpoint that needs them."""
    found: dict[str, int] = {}
    for place in frames.values():
        found[place.path.stem] = found.get(place.path.stem, 0) + 1
    return found


def load(
    folder: Path, round: int, counted: Mapping[str, int], run: str
) -> tuple[dict[Key, Written], bool]:
    """Load the messages that a checkpoint of `round` needs, and return whether all exist.

    Raises `Damaged` if the checkpoint's own file is damaged: its messages are computed again from
    the checkpoint before. Damaged messages of earlier files are set aside.
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
            if path.exists():  # else it was removed, since nobody needs it
                os.rename(path, unused(path))
                LOG.warning(f"{path} is damaged ({cause}): no neighbour can be set back so far")
    return found, whole


def prune(folder: Path, wanted: set[str]) -> None:
    """Remove the files that are not needed."""
    for path in folder.glob("[0-9]*.log*"):
        if path.suffix in (".log", ".tmp") and path.name.split(".")[0] not in wanted:
            path.unlink()


def _file(folder: Path, round: int) -> Path:
    return folder / f"{round:010d}.log"


def _read(path: Path, run: str) -> dict[Key, Written]:
    """Read every message of a file, by round and talk, and verify it."""
    content, start, found = path.read_bytes(), 0, {}
    view = memoryview(content)
    while start < len(content):
        if start + LENGTH.size > len(content):
            raise FrameError("cut short")
        (length,) = LENGTH.unpack_from(content, start)
        start += LENGTH.size
        if start + length > len(content):
            raise FrameError("cut short")
        header, _ = wire_format.unpack(view[start : start + length], len(content))
        if header.get("run") != run:
            raise FrameError("of another run")
        found[header["round"], header["talk"]] = Written(path, start, length)
        start += length
    return found
