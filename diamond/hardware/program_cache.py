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


def compile_once(name: str, function: Callable[..., Any], *arguments: Any) -> Any:
    """Call function(*arguments) in the first process alone, then in the others at once.

    `name` identifies the compiled programs, equal in all processes.
    """
    folder = compilation_cache.cache_folder()
    if folder is None or fcntl is None or name in _compiled:
        return function(*arguments)
    path = folder / f"{name}.lock"
    try:
        lock_file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError:
        return function(*arguments)
    try:
        is_first = _try_lock(lock_file, fcntl.LOCK_EX)
        if not is_first:
            _wait_for_first(lock_file)
        result = function(*arguments)
        _compiled.add(name)
        if is_first:
            path.unlink(missing_ok=True)  # later processes find everything compiled
        return result
    finally:
        os.close(lock_file)


def _wait_for_first(lock_file: int) -> None:
    """Wait until the first process has compiled."""
    until = time.monotonic() + PATIENCE
    while not _try_lock(lock_file, fcntl.LOCK_SH) and time.monotonic() < until:
        time.sleep(PAUSE)


def _try_lock(lock_file: int, kind: int) -> bool:
    try:
        fcntl.flock(lock_file, kind | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
