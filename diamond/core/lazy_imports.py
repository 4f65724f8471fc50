"""Lazy imports: names of a package that are imported on first access, listed in its stub.

The stub, `__init__.pyi`, is the only list of names: type checkers read it, and so does the package.
"""

import ast
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from .gc_control import gc_disabled
from .suggestions import did_you_mean


def attach_stub(
    package: str, init_file: str, earlier: Sequence[str] = ()
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Return `__getattr__`, `__dir__` and `__all__` of the package with this `__init__.py`.

    The stub next to `init_file` has relative imports only, `from .module import name as name` and
    `from . import module as module`. Modules with `earlier` names exist, and are not listed.
    """
    sources = _read_stub(Path(init_file).with_suffix(".pyi"))
    public = sorted(name for name in sources if not name.startswith("_"))
    sources |= {name: (name, True) for name in earlier}

    def get_attribute(name: str) -> Any:
        if name not in sources:
            suggestion = did_you_mean(name, public)
            hint = f"; {suggestion}" if suggestion.startswith("did you mean") else ""
            raise AttributeError(f"module {package!r} has no attribute {name!r}{hint}")
        module, is_module = sources[name]
        with gc_disabled():
            value = import_module(f".{module}", package)
        value = value if is_module else getattr(value, name)
        setattr(sys.modules[package], name, value)  # later accesses do not call this function
        return value

    def list_names() -> list[str]:
        return [*public, *(name for name in vars(sys.modules[package]) if name.startswith("__"))]

    return get_attribute, list_names, public


def _read_stub(path: Path) -> dict[str, tuple[str, bool]]:
    """Return the module of each name in a stub, and whether the name is that module itself."""
    sources: dict[str, tuple[str, bool]] = {}
    for node in ast.parse(path.read_text("utf-8")).body:
        if isinstance(node, ast.ImportFrom):
            for name in (alias.name for alias in node.names):
                sources[name] = (node.module, False) if node.module else (name, True)
    return sources
