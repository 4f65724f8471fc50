"""Several processes of a machine that need the same programs: one compiles, the others wait for it.

What it has compiled they find in the cache (`compilation_cache`). The lock is the kernel's, and
goes with the process that holds it; for one that hangs, nobody waits longer than `PATIENCE`. It
saves time, and nothing depends on it: where no lock is to be had, each compiles for itself.
"""

import os
import time
from collections.abc import Callable
from typing import Any

from . import compilation_cache

try:
    import fcntl
except ImportError:  # where there are no such locks
    fcntl = None  # type: ignore[assignment]

PATIENCE, PAUSE = 60.0, 0.05  # seconds
_compiled: set[str] = set()  # by this process: nothing to wait for any more


def first_alone(what: str, function: Callable[..., Any], *given: Any) -> Any:
    """function(*given): by the first process that comes alone, then by the others all at once.

    `what` names the programs that it takes, the same in all processes.
    """
    folder = compilation_cache.folder()
    if folder is None or fcntl is None or what in _compiled:
        return function(*given)
    path = folder / f"{what}.lock"
    try:
        held = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError:
        return function(*given)
    try:
        alone = _locked(held, fcntl.LOCK_EX)
        if not alone:
            _wait(held)
        found = function(*given)
        _compiled.add(what)
        if alone:
            path.unlink(missing_ok=True)  # whoever comes now finds all compiled
        return found
    finally:
        os.close(held)


def _wait(held: int) -> None:
    """Until the first one has compiled."""
    until = time.monotonic() + PATIENCE
    while not _locked(held, fcntl.LOCK_SH) and time.monotonic() < until:
        time.sleep(PAUSE)


def _locked(held: int, kind: int) -> bool:
    try:
        fcntl.flock(held, kind | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
