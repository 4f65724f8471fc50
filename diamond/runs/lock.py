"""One writer at a time."""

import time
from pathlib import Path
from typing import BinaryIO

TRIES, PAUSE = 5, 0.02  # seconds between


class Busy(RuntimeError):
    """Another process is writing into the folder."""


def locked(path: Path) -> BinaryIO:
    """Hold `path` for this process; the system lets go of it when the process ends, however."""
    stream = path.open("ab")
    for tries in range(TRIES):
        if _taken(stream, exclusive=True):
            return stream
        time.sleep(PAUSE * (tries < TRIES - 1))  # someone may only be looking
    stream.close()
    raise Busy(f"{path.parent}: another process is running it; wait, or end that process first")


def abandoned(path: Path) -> bool:
    """Whether there is such a lock and no process holds it."""
    try:
        with path.open("rb") as stream:
            return _taken(stream, exclusive=False)
    except OSError:
        return False


def _taken(stream: BinaryIO, exclusive: bool) -> bool:
    """Take the lock, with others or not; whether that was possible."""
    try:
        import fcntl
    except ImportError:  # no such locks on Windows: there, two writers are the user's care
        return exclusive
    try:
        fcntl.flock(stream, (fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH) | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
