"""Functions of the user's own files, "mine.py:make", and the digests of these files."""

import hashlib
import importlib.util
import inspect
import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import Any, NamedTuple

from ..core.suggestions import did_you_mean
from .validation_errors import wrong

SPELLED = re.compile(r"(?P<file>.+\.py):(?P<function>\w+)")


class UserFunction(NamedTuple):
    """Function with the file that defines it."""

    path: Path
    make: Callable[..., Any]

    @property
    def name(self) -> str:
        """Return the name for messages."""
        return f"{self.path.name}:{self.make.__name__}"

    @property
    def spelled(self) -> str:
        """Return the name for a file, independent of that file's folder."""
        return f"{self.path}:{self.make.__name__}"

    @property
    def sources(self) -> dict[str, str]:
        """Return the digests of the file and of the user's other files that it imported."""
        return digests(self.path, *_beside(self.path))

    @property
    def called(self) -> Callable[..., Any]:
        """Return the function with its file's folder importable."""

        @wraps(self.make)
        def call(**options: Any) -> Any:
            with _importable(self.path.parent):
                return self.make(**options)

        return call


def digests(*paths: Path) -> dict[str, str]:
    """Return the content digests of those `paths` that are files."""
    files = [path for path in paths if path.is_file()]
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def _beside(path: Path) -> list[Path]:
    """List the user's other imported files: modules in or below the same folder."""
    files = [Path(f) for m in list(sys.modules.values()) if (f := getattr(m, "__file__", None))]
    own = [file for file in files if file.suffix == ".py" and path.parent in file.parents]
    return sorted(file for file in own if file != path and "site-packages" not in file.parts)


def user_function(text: str, base: Path, key: str) -> UserFunction | None:
    """Return the function that `text` names, its file relative to `base`; None if it names none.

    Errors are reported as mistakes of `key`.
    """
    found = SPELLED.fullmatch(text)
    if found is None:
        return None
    path = Path(os.path.normpath(base / found["file"]))
    module = _module(path, key)
    make = getattr(module, found["function"], None)
    if not callable(make):
        there = [name for name, inner in vars(module).items() if inspect.isfunction(inner)]
        said = f"{path.name} has no function {found['function']!r}"
        raise wrong(f"{said}; {did_you_mean(found['function'], there)}", key)
    return UserFunction(path, make)


def _module(path: Path, key: str) -> Any:
    """Execute the user's file as a module."""
    if not path.is_file():
        near = [found.name for found in path.parent.glob("*.py")] if path.parent.is_dir() else []
        raise wrong(f"there is no file {path}; {did_you_mean(path.name, near)}", key)
    name = f"diamond_own_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        with _importable(path.parent):
            spec.loader.exec_module(module)
    except Exception as cause:
        raise wrong(f"{path.name} cannot be run: {type(cause).__name__}: {cause}", key) from None
    return module


@contextmanager
def _importable(folder: Path) -> Iterator[None]:
    """Make the user's other files importable."""
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))
