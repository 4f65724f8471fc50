"""Functions of the user's own files, "mine.py:make", and the digests of these files."""

import hashlib
import importlib.util
import inspect
import os
import re
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import Any, NamedTuple

from ..core.suggestions import did_you_mean
from .validation_errors import config_error

REFERENCE = re.compile(r"(?P<file>.+\.py):(?P<function>\w+)")


class UserFunction(NamedTuple):
    """Function with the file that defines it."""

    path: Path
    make: Callable[..., Any]

    @property
    def name(self) -> str:
        """Return the name for messages."""
        return f"{self.path.name}:{self.make.__name__}"

    @property
    def reference(self) -> str:
        """Return the name for a file, independent of that file's folder."""
        return f"{self.path}:{self.make.__name__}"

    @property
    def sources(self) -> dict[str, str]:
        """Return the digests of the file and of the user's other files that it imported."""
        return digests(self.path, *_imported_siblings(self.path))

    @property
    def wrapped(self) -> Callable[..., Any]:
        """Return the function with its file's folder importable."""

        @wraps(self.make)
        def call(**options: Any) -> Any:
            try:
                with _importable(self.path.parent):
                    return self.make(**options)
            except (ValueError, TypeError, OSError, ImportError):
                raise  # reported by its message alone
            except Exception as cause:
                place = traceback.extract_tb(cause.__traceback__)[-1]
                raise ValueError(
                    f"{self.name} failed: {type(cause).__name__}: {cause} "
                    f"({Path(place.filename).name}, line {place.lineno})"
                ) from cause

        return call


def digests(*paths: Path) -> dict[str, str]:
    """Return the content digests of those `paths` that are files."""
    files = [path for path in paths if path.is_file()]
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def _imported_siblings(path: Path) -> list[Path]:
    """List the user's other imported files: modules in or below the same folder."""
    files = [Path(f) for m in list(sys.modules.values()) if (f := getattr(m, "__file__", None))]
    siblings = [file for file in files if file.suffix == ".py" and path.parent in file.parents]
    return sorted(file for file in siblings if file != path and "site-packages" not in file.parts)


def user_function(text: str, base: Path, key: str) -> UserFunction | None:
    """Return the function that `text` names, its file relative to `base`; None if it names none.

    Errors are reported as mistakes of `key`.
    """
    match = REFERENCE.fullmatch(text)
    if match is None:
        return None
    path = Path(os.path.normpath(base / match["file"]))
    module = _execute_file(path, key)
    make = getattr(module, match["function"], None)
    if not callable(make):
        functions = [name for name, inner in vars(module).items() if inspect.isfunction(inner)]
        message = f"{path.name} has no function {match['function']!r}"
        raise config_error(f"{message}; {did_you_mean(match['function'], functions)}", key)
    return UserFunction(path, make)


def _execute_file(path: Path, key: str) -> Any:
    """Execute the user's file as a module."""
    if not path.is_file():
        candidates = (
            [file.name for file in path.parent.glob("*.py")] if path.parent.is_dir() else []
        )
        raise config_error(f"there is no file {path}; {did_you_mean(path.name, candidates)}", key)
    name = f"diamond_own_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        with _importable(path.parent):
            spec.loader.exec_module(module)
    except Exception as cause:
        raise config_error(
            f"{path.name} cannot be run: {type(cause).__name__}: {cause}", key
        ) from None
    return module


@contextmanager
def _importable(folder: Path) -> Iterator[None]:
    """Make the user's other files importable."""
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))
