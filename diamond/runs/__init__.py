"""What a run leaves behind: an object, a folder (`config.toml`, `manifest.json`, `metrics.jsonl`,
`checkpoint/`), a picture.

Names are imported when first asked for: reading a folder needs no JAX.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .lock import Busy
    from .manifest import Origin, closing, opening, versions
    from .metrics import Metrics
    from .reader import Stored, below, open_run, runs
    from .trajectory_digest import digest
    from .writer import Writer

__all__ = [
    "Busy",
    "Metrics",
    "Origin",
    "Stored",
    "Writer",
    "below",
    "closing",
    "digest",
    "open_run",
    "opening",
    "runs",
    "versions",
]
_HOMES = {
    "lock": ("Busy",),
    "manifest": ("Origin", "closing", "opening", "versions"),
    "metrics": ("Metrics",),
    "reader": ("Stored", "below", "open_run", "runs"),
    "trajectory_digest": ("digest",),
    "writer": ("Writer",),
}


def __getattr__(name: str) -> Any:
    for home, names in _HOMES.items():
        if name in names:
            return getattr(import_module(f".{home}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
