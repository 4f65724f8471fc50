"""Lock of a run folder: one writer at a time."""

import time
from pathlib import Path
from typing import BinaryIO

TRIES, PAUSE = 5, 0.02  # seconds between tries


class FolderBusy(RuntimeError):
    """Error: another process is writing into the folder."""


def acquire_lock(path: Path) -> BinaryIO:
    """Lock `path` for this process; the system releases the lock when the process ends."""
    stream = path.open("ab")
    for attempt in range(TRIES):
        if _try_lock(stream, exclusive=True):
            return stream
        time.sleep(PAUSE * (attempt < TRIES - 1))  # a reader may hold the lock briefly
    stream.close()
    raise FolderBusy(
        f"{path.parent}: another process is running it; wait, or end that process first"
    )


def is_abandoned(path: Path) -> bool:
    """Return whether the lock file exists and no process holds it."""
    try:
        with path.open("rb") as stream:
            return _try_lock(stream, exclusive=False)
    except OSError:
        return False


def _try_lock(stream: BinaryIO, exclusive: bool) -> bool:
    """Try to take the lock, shared or exclusive; return whether that succeeded."""
    try:
        import fcntl
    except ImportError:  # Windows has no such locks: the user must avoid two writers
        return exclusive
    try:
        fcntl.flock(stream, (fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH) | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
