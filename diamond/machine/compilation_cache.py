"""JAX's persistent compilation cache: a second start need not compile.

Compiled programs are kept in the user's cache, `~/.cache/diamond/xla` or below XDG_CACHE_HOME, from
the first problem of a process on. The variable DIAMOND_CACHE names another folder, or turns it off:
DIAMOND_CACHE=off. Where JAX was told already where to keep its programs, nothing is changed.
"""

import os
from pathlib import Path

VARIABLE, OFF = "DIAMOND_CACHE", ("off", "0", "no", "false")
LIMIT = 2**30  # bytes: when a process begins, what was used longest ago goes until no more is left
_on: list[Path] = []  # where this process keeps them


def compile_cache() -> None:
    """Keep compiled programs for the next process, unless the user says otherwise."""
    import jax

    asked = os.environ.get(VARIABLE, "")
    if _on or asked.lower() in OFF or jax.config.jax_compilation_cache_dir is not None:  # type: ignore[attr-defined]
        return
    folder = Path(asked) if asked else _home() / "diamond" / "xla"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        prune(folder, LIMIT)
    except OSError:  # a home that cannot be written to: every process compiles for itself
        return
    from jax.experimental.compilation_cache import compilation_cache

    _on.append(folder)
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    compilation_cache.reset_cache()  # what was compiled before has settled that there is none


def folder() -> Path | None:
    """Where this process keeps them; None if it does not."""
    return _on[0] if _on else None


def prune(folder: Path, limit: int) -> None:
    """Remove what was used longest ago until `folder` holds at most `limit` bytes."""
    found = [(entry, entry.stat()) for entry in os.scandir(folder) if entry.is_file()]
    left = sum(about.st_size for _, about in found)
    for entry, about in sorted(found, key=lambda one: max(one[1].st_atime, one[1].st_mtime)):
        if left <= limit:
            return
        Path(entry.path).unlink(missing_ok=True)
        left -= about.st_size


def _home() -> Path:
    """The user's cache."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
