"""Check that a run folder is writable, before anything is compiled."""

import errno
import shutil
import tempfile
from pathlib import Path

LEAST = 2**22  # minimum number of free bytes


class NoRoom(OSError):
    """Error: a run cannot be written to this place."""


def room(path: Path, size: int = 0) -> None:
    """Refuse a folder that is not writable or has fewer than `size` bytes free."""
    there = path.absolute()
    while not there.exists():
        there = there.parent
    if not there.is_dir():
        said = "is a file, where the folder of the run is to go; give another --out"
        raise NotADirectoryError(errno.ENOTDIR, said, str(there))
    try:
        with tempfile.TemporaryFile(dir=there) as stream:
            stream.write(b"diamond")
            stream.flush()
    except OSError as cause:
        said = f"{cause.strerror}; give another place by --out"
        raise NoRoom(cause.errno, said, str(there)) from None
    left, needed = shutil.disk_usage(there).free, max(size, LEAST)
    if left < needed:
        said = f"only {left / 1e6:.1f} MB are left, and the run needs {needed / 1e6:.1f}"
        raise NoRoom(errno.ENOSPC, f"{said}; make room, or give another place by --out", str(there))
