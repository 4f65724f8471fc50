"""JAX's persistent compilation cache, which spares later processes the compilation.

Compiled programs are stored in the user's cache, `~/.cache/diamond/xla` or below XDG_CACHE_HOME,
from the first problem of a process on. The variable DIAMOND_CACHE names another folder, or disables
the cache: DIAMOND_CACHE=off. A cache folder already set in JAX is not changed.
"""

import os
from pathlib import Path

VARIABLE, OFF = "DIAMOND_CACHE", ("off", "0", "no", "false")
LIMIT = 2**30  # bytes: at start, a process removes the least recently used files beyond
_on: list[Path] = []  # cache folder of this process


def compile_cache() -> None:
    """Enable the cache, unless the user has disabled or configured it."""
    import jax

    asked = os.environ.get(VARIABLE, "")
    if _on or asked.lower() in OFF or jax.config.jax_compilation_cache_dir is not None:  # type: ignore[attr-defined]
        return
    folder = Path(asked) if asked else _home() / "diamond" / "xla"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        prune(folder, LIMIT)
    except OSError:  # the home is not writable: every process compiles
        return
    from jax.experimental.compilation_cache import compilation_cache

    _on.append(folder)
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    compilation_cache.reset_cache()  # an earlier compilation has fixed that there is no cache


def folder() -> Path | None:
    """Return the cache folder of this process, or None."""
    return _on[0] if _on else None


def prune(folder: Path, limit: int) -> None:
    """Remove the least recently used files until `folder` holds at most `limit` bytes."""
    found = [(entry, entry.stat()) for entry in os.scandir(folder) if entry.is_file()]
    left = sum(about.st_size for _, about in found)
    for entry, about in sorted(found, key=lambda one: max(one[1].st_atime, one[1].st_mtime)):
        if left <= limit:
            return
        Path(entry.path).unlink(missing_ok=True)
        left -= about.st_size


def _home() -> Path:
    """Return the user's cache folder."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
