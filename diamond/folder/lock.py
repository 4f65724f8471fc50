"""One writer at a time."""

from pathlib import Path
from typing import BinaryIO


class Busy(RuntimeError):
    """Another process is writing into the folder."""


def locked(path: Path) -> BinaryIO:
    """Hold `path` for this process; the system lets go of it when the process ends, however."""
    stream = path.open("ab")
    try:
        import fcntl
    except ImportError:  # no such locks on Windows: there, two writers are the user's care
        return stream
    try:
        fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        stream.close()
        raise Busy(
            f"{path.parent}: another process is running it; wait, or end that process first"
        ) from None
    return stream
