"""Registry of all methods by name.

The files of diamond/algorithms are the registry; other packages add methods by entry points of the
group `diamond.algorithms`, each a function that makes a method.
"""

import importlib
import pkgutil
from collections.abc import Callable
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from .. import algorithms
from ..core.suggestions import did_you_mean
from ..interface.round_interface import NETWORKS

COMPOSED = "compose"  # composes any method, and is none itself
LEVELS = ("personal", "common", "none")


def names() -> list[str]:
    """Return the names of all methods, of this package and of other packages."""
    return sorted({*package_methods(), *_entry_point_methods()})


def maker(name: str) -> Callable[..., Any]:
    """Return the function that makes the method `name`; raise ValueError if there is none."""
    if name in _entry_point_methods():
        return _entry_point_methods()[name].load()
    if name not in names():
        raise ValueError(f"no algorithm {name!r}; {did_you_mean(name, names())}")
    return getattr(importlib.import_module(package_methods()[name]), name)


@cache
def package_methods() -> dict[str, str]:
    """Return the modules of this package's methods by name, cached because it lists folders."""
    root = algorithms.__name__
    rooms = [(root, algorithms.__path__)]
    for room in pkgutil.iter_modules(algorithms.__path__):
        if room.name.endswith("_methods"):
            rooms.append((f"{root}.{room.name}", [f"{path}/{room.name}" for path in rooms[0][1]]))
    return {
        module.name: f"{place}.{module.name}"
        for place, paths in rooms
        for module in pkgutil.iter_modules(paths)
        if not module.ispkg and module.name[0] != "_"
    }


@cache
def _entry_point_methods() -> dict[str, EntryPoint]:
    """Return the methods of other packages, cached because it scans all installed packages."""
    return {point.name: point for point in entry_points(group="diamond.algorithms")}


def methods_for(level: str, network: str = NETWORKS[0]) -> list[str]:
    """Return the methods for this kind of lower level that are correct on such a network."""
    methods = {name: maker(name)() for name in names() if name != COMPOSED}
    widest = lambda method: NETWORKS.index(method.networks)
    suitable = {name: m for name, m in methods.items() if level in m.lower_levels}
    return [name for name, m in suitable.items() if NETWORKS.index(network) <= widest(m)]


def methods_without_convexity(level: str) -> list[str]:
    """Return the methods for this kind of lower level that need no strong convexity of it."""
    return [name for name in methods_for(level) if not maker(name)().needs_strong_convexity]
