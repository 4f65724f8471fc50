"""Check that a run folder is writable, before anything is compiled."""

import errno
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

MIN_FREE_BYTES = 2**22  # minimum number of free bytes


class DiskFull(OSError):
    """Error: a file of a run could not be written completely; the run can be continued."""


class NotWritable(OSError):
    """Error: a run cannot be written to this place."""


@contextmanager
def detect_full_disk(path: Path) -> Iterator[None]:
    """Raise `DiskFull` with the name of the file if its disk is full."""
    try:
        yield
    except OSError as cause:
        if cause.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise DiskFull(cause.errno, cause.strerror, str(path)) from None


def check_writable(path: Path, size: int = 0) -> None:
    """Refuse a folder that is not writable or has fewer than `size` bytes free."""
    existing = path.absolute()
    while not existing.exists():
        existing = existing.parent
    if not existing.is_dir():
        reason = "is a file, where the folder of the run is to go; give another --out"
        raise NotADirectoryError(errno.ENOTDIR, reason, str(existing))
    try:
        with tempfile.TemporaryFile(dir=existing) as stream:
            stream.write(b"diamond")
            stream.flush()
    except OSError as cause:
        reason = f"{cause.strerror}; give another place by --out"
        raise NotWritable(cause.errno, reason, str(existing)) from None
    left, needed = shutil.disk_usage(existing).free, max(size, MIN_FREE_BYTES)
    if left < needed:
        reason = f"only {left / 1e6:.1f} MB are left, and the run needs {needed / 1e6:.1f}"
        raise NotWritable(
            errno.ENOSPC, f"{reason}; make room, or give another place by --out", str(existing)
        )
