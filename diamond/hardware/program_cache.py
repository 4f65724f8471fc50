"""Lock by which one of several processes compiles and the others wait for its result.

The others read the compiled programs from the cache (`compilation_cache`). The lock belongs to the
kernel, and ends with the process that holds it; nobody waits longer than `PATIENCE` for a process
that hangs. The lock only saves time: without locks each process compiles.
"""

import os
import time
from collections.abc import Callable
from typing import Any

from . import compilation_cache

try:
    import fcntl
except ImportError:  # no such locks on this system
    fcntl = None  # type: ignore[assignment]

PATIENCE, PAUSE = 60.0, 0.05  # seconds
_compiled: set[str] = set()  # by this process, which need not wait again


def first_alone(what: str, function: Callable[..., Any], *given: Any) -> Any:
    """Call function(*given) in the first process alone, then in the others at once.

    `what` names the compiled programs, equal in all processes.
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
            path.unlink(missing_ok=True)  # later processes find everything compiled
        return found
    finally:
        os.close(held)


def _wait(held: int) -> None:
    """Wait until the first process has compiled."""
    until = time.monotonic() + PATIENCE
    while not _locked(held, fcntl.LOCK_SH) and time.monotonic() < until:
        time.sleep(PAUSE)


def _locked(held: int, kind: int) -> bool:
    try:
        fcntl.flock(held, kind | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
