"""The problem of an experiment: one that comes with the package, or the user's own function."""

import hashlib
import importlib.util
import inspect
import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from .. import demo, problems
from ..problem import Problem
from .deal import deal, dealable, found_at, partition_options
from .mistakes import did_you_mean, gather, wrong
from .options import parameters, read
from .parts import Part, table

OWN = re.compile(r"(?P<file>.+\.py):(?P<function>\w+)")
ROWS = ("train", "valid", "test")
EXAMPLE = '{kind = "my_problem.py:make"}'


def names() -> list[str]:
    """The problems that come with the package."""
    found = [name for name in problems.__all__ if inspect.isfunction(getattr(problems, name))]
    return sorted([*found, "digits"])


def problem(value: Any, base: Path) -> Part:
    """A problem from its kind, or from a table with `kind` and options; paths start at `base`."""
    given = table(value, "kind", EXAMPLE)
    kind = given.pop("kind")
    if own := OWN.fullmatch(kind):
        return _own(Path(os.path.normpath(base / own["file"])), own["function"], given)
    canonical = kind.lower().replace("-", "_")
    if canonical not in names():
        said = f"no problem {kind!r}; {did_you_mean(kind, names())}"
        raise wrong(f"{said}, or your own as {EXAMPLE}", "kind")
    make: Callable[..., Any] = demo.digits
    if canonical != "digits":
        make = getattr(problems, canonical)
    if "train" in parameters(make):
        return _on_rows(canonical, make, given, base)
    options = read(canonical, parameters(make), given)
    return Part(canonical, options.spelled, lambda: _checked(make(**options.objects), canonical))


def _on_rows(name: str, make: Callable[..., Any], given: dict[str, Any], base: Path) -> Part:
    """A problem that takes rows, on a data set dealt out to the agents."""
    dealt, rest = parameters(deal), parameters(make, without=ROWS)
    readers: list[Callable[[], Any]] = [
        lambda: read(name, {**dealt, **rest}, given),
        lambda: dealable(given),
    ]
    if isinstance(given.get("partition"), str | dict):
        readers.append(lambda: partition_options(given["partition"]))
    if isinstance(given.get("dataset"), str):
        readers.append(lambda: found_at(given["dataset"], base))
    options = gather(*readers)[0]
    of = lambda taken: {k: v for k, v in options.objects.items() if k in taken}
    rows, inner = of(dealt) | {"dataset": found_at(given["dataset"], base)}, of(rest)

    def build() -> Problem:
        train, valid, test, classes = deal(**rows)
        own = {"classes": classes} if "classes" in rest else {}
        return make(train, valid, test, **own | inner)

    spelled = options.spelled | {"dataset": rows["dataset"]}
    spelled["partition"] = partition_options(spelled["partition"])[1]
    if "classes" not in given:
        spelled.pop("classes", None)  # as many as the data set has
    return Part(name, spelled, build, sources=_digests(Path(rows["dataset"])))


def _own(path: Path, function: str, given: dict[str, Any]) -> Part:
    """A function of the user's own file."""
    module = _module(path)
    make = getattr(module, function, None)
    if not callable(make):
        there = [name for name, found in vars(module).items() if inspect.isfunction(found)]
        raise wrong(
            f"{path.name} has no function {function!r}; {did_you_mean(function, there)}", "kind"
        )
    options = read(f"{path.name}:{function}", parameters(make), given)

    def build() -> Problem:
        with _importable(path.parent):
            return _checked(make(**options.objects), f"{path.name}:{function}")

    sources = _digests(path, *_beside(path))
    return Part(f"{path}:{function}", options.spelled, build, sources=sources)


def _digests(*paths: Path) -> dict[str, str]:
    """Those of `paths` that are files, each with the digest of its content."""
    files = [path for path in paths if path.is_file()]
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def _beside(path: Path) -> list[Path]:
    """The user's other files that are imported by now: modules in or below the same folder."""
    files = [Path(f) for m in list(sys.modules.values()) if (f := getattr(m, "__file__", None))]
    own = [file for file in files if file.suffix == ".py" and path.parent in file.parents]
    return sorted(file for file in own if file != path and "site-packages" not in file.parts)


def _module(path: Path) -> Any:
    """The user's file, run."""
    if not path.is_file():
        near = [found.name for found in path.parent.glob("*.py")] if path.parent.is_dir() else []
        raise wrong(f"there is no file {path}; {did_you_mean(path.name, near)}", "kind")
    name = f"diamond_problem_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        with _importable(path.parent):
            spec.loader.exec_module(module)
    except Exception as cause:
        raise wrong(f"{path.name} cannot be run: {type(cause).__name__}: {cause}", "kind") from None
    return module


def _checked(made: Any, name: str) -> Problem:
    found = getattr(made, "problem", made)
    if not isinstance(found, Problem):
        raise ValueError(f"{name} returned {type(made).__name__}; it must return a diamond.Problem")
    return found


@contextmanager
def _importable(folder: Path) -> Iterator[None]:
    """The user's other files can be imported."""
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))
