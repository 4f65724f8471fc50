"""JAX's persistent compilation cache, which spares later processes the compilation.

Compiled programs are stored in the user's cache, `~/.cache/diamond/xla` or below XDG_CACHE_HOME,
from the first problem of a process on. The variable DIAMOND_CACHE names another folder, or disables
the cache: DIAMOND_CACHE=off. A cache folder already set in JAX is not changed.
"""

import os
from pathlib import Path

VARIABLE, OFF = "DIAMOND_CACHE", ("off", "0", "no", "false")
LIMIT = 2**30  # bytes: at start, a process removes the least recently used files beyond
_enabled: list[Path] = []  # cache folder of this process


def enable_compile_cache() -> None:
    """Enable the cache, unless the user has disabled or configured it."""
    import jax

    requested = os.environ.get(VARIABLE, "")
    if _enabled or requested.lower() in OFF or jax.config.jax_compilation_cache_dir is not None:  # type: ignore[attr-defined, unused-ignore]
        return
    user_cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    cache_folder = Path(requested) if requested else user_cache / "diamond" / "xla"
    try:
        cache_folder.mkdir(parents=True, exist_ok=True)
        prune(cache_folder, LIMIT)
    except OSError:  # the home is not writable: every process compiles
        return
    from jax.experimental.compilation_cache import compilation_cache

    _enabled.append(cache_folder)
    jax.config.update("jax_compilation_cache_dir", str(cache_folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    compilation_cache.reset_cache()  # an earlier compilation has fixed that there is no cache


def cache_folder() -> Path | None:
    """Return the cache folder of this process, or None."""
    return _enabled[0] if _enabled else None


def prune(cache_folder: Path, limit: int) -> None:
    """Remove the least recently used files until `cache_folder` holds at most `limit` bytes."""
    entries = [(entry, entry.stat()) for entry in os.scandir(cache_folder) if entry.is_file()]
    total = sum(stat.st_size for _, stat in entries)
    for entry, stat in sorted(entries, key=lambda item: max(item[1].st_atime, item[1].st_mtime)):
        if total <= limit:
            return
        Path(entry.path).unlink(missing_ok=True)
        total -= stat.st_size
