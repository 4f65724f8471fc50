"""Messages on the disk, each written once: one file per interval between checkpoints.

A file is written under another name, flushed and renamed before the checkpoint that needs it. It is
removed once no neighbour may request its messages and no kept checkpoint ends in it. Memory then
holds only the messages since the last checkpoint.
"""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ...core.parsing import refuse_unreadable
from ...records import checkpoint_file
from ...records.checkpoint_file import DamagedCheckpoint
from ...records.folder_recovery import set_aside
from ..transport.audit import log_event
from ..transport.wire_format import FrameError
from .frame_log import encode_entry, read_entries

MessageKey = tuple[int, int]  # round and consensus step


class StoredMessage(NamedTuple):
    """Location of a message on the disk."""

    path: Path
    start: int
    length: int

    def read(self) -> np.ndarray:
        """Read the bytes of the message; the receiver verifies them."""
        return np.fromfile(self.path, np.uint8, self.length, offset=self.start)


Locations = dict[MessageKey, StoredMessage]


def save(folder: Path, round: int, frames: Mapping[MessageKey, Any]) -> Locations:
    """Write the messages that are in memory only; return their locations."""
    unsaved = {
        key: content for key, content in frames.items() if not isinstance(content, StoredMessage)
    }
    path, chunks, locations, end = _file(folder, round), list[Any](), {}, 0
    for key, content in unsaved.items():
        chunks += (parts := encode_entry(content))
        end += sum(map(len, parts))
        locations[key] = StoredMessage(path, end - len(content), len(content))
    folder.mkdir(parents=True, exist_ok=True)
    checkpoint_file.replace_file(path, *chunks)
    return locations


def count_messages(frames: Mapping[MessageKey, Any]) -> dict[str, int]:
    """Count the messages in each file, for the checkpoint that needs them."""
    return Counter(location.path.stem for location in frames.values())


def load(folder: Path, round: int, counts: Mapping[str, int], run: str) -> tuple[Locations, bool]:
    """Load the messages that a checkpoint of `round` needs, and return whether all exist.

    Raises `DamagedCheckpoint` if the checkpoint's own file is damaged: its messages are computed
    again from the checkpoint before. Damaged messages of earlier files are set aside.
    """
    locations: Locations = {}
    is_complete = True
    for stem, count in counts.items():
        path = _file(folder, int(stem))
        try:
            messages = _read(path, run)
            if len(messages) < count:
                raise DamagedCheckpoint(
                    f"{path}: {len(messages)} messages where {count} were written"
                )
            locations |= messages
        except (FrameError, DamagedCheckpoint) as cause:
            is_complete = False
            if int(stem) == round:
                raise DamagedCheckpoint(f"{path}: not what was written ({cause})") from None
            if path.exists():  # else it was removed, since nobody needs it
                set_aside(path)
                log_event(f"{path} is damaged ({cause})", "no neighbour can be set back so far")
    return locations, is_complete


def prune(folder: Path, needed: set[str]) -> None:
    """Remove the files that are not needed."""
    for path in folder.glob("[0-9]*.log*"):
        if path.suffix in (".log", ".tmp") and path.name.split(".")[0] not in needed:
            path.unlink()


def _file(folder: Path, round: int) -> Path:
    return folder / f"{round:010d}.log"


@refuse_unreadable(FrameError, "not what was written", OSError)
def _read(path: Path, run: str) -> Locations:
    """Read every message of a file, by round and consensus step, and verify it."""
    locations = {}
    for entry in read_entries(path.read_bytes()):
        if entry.header.get("run") != run:
            raise FrameError("of another run")
        key = entry.header["round"], entry.header["talk"]
        locations[key] = StoredMessage(path, entry.start, entry.end - entry.start)
    return locations
