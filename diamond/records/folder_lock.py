"""Lock of a run folder: one writer at a time."""

import time
from pathlib import Path
from typing import BinaryIO

TRIES, PAUSE = 5, 0.02  # seconds between tries


class Busy(RuntimeError):
    """Error: another process is writing into the folder."""


def locked(path: Path) -> BinaryIO:
    """Lock `path` for this process; the system releases the lock when the process ends."""
    stream = path.open("ab")
    for tries in range(TRIES):
        if _taken(stream, exclusive=True):
            return stream
        time.sleep(PAUSE * (tries < TRIES - 1))  # a reader may hold the lock briefly
    stream.close()
    raise Busy(f"{path.parent}: another process is running it; wait, or end that process first")


def abandoned(path: Path) -> bool:
    """Return whether the lock file exists and no process holds it."""
    try:
        with path.open("rb") as stream:
            return _taken(stream, exclusive=False)
    except OSError:
        return False


def _taken(stream: BinaryIO, exclusive: bool) -> bool:
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
