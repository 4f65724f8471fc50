"""Data sets by name or by path: found, and read."""

import os
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from glob import escape, glob
from pathlib import Path
from typing import Any

from .. import data
from ..data import Dataset
from .validation_errors import did_you_mean, wrong

KNOWN: dict[str, Callable[..., Dataset]] = {
    "a9a": data.a9a,
    "cifar10": data.cifar10,
    "digits": lambda folder=None: data.digits(),
    "ijcnn1": data.ijcnn1,
    "mnist": data.mnist,
}

TABLES: dict[str, Callable[..., Dataset]] = {".csv": data.csv, ".parquet": data.parquet}
AGENT = "{agent}"  # in a pattern
Place = str | Sequence[str] | Mapping[str, str]  # a name or a path, several, or several by site


def load(
    dataset: Place,
    folder: str | None = None,
    label: str = "label",
    site: str | None = None,
    real: bool = False,
    features: Sequence[str] | None = None,
) -> Dataset:
    """The data set of that name, or the csv, npz, Parquet or LIBSVM files there, each a site.

    `real`: labels are numbers to regress on. `features`: the columns to use of a table.
    """
    if isinstance(dataset, str) and dataset in KNOWN:
        if real:
            raise data.DataError(f"{dataset} has classes; take a problem that takes classes")
        return KNOWN[dataset](folder)
    names = tuple(dataset) if isinstance(dataset, Mapping) else None
    stamps = tuple((path, os.stat(path).st_mtime_ns) for path in files(dataset))
    columns = None if features is None else tuple(features)
    return _read(stamps, label, site, real, isinstance(dataset, str), columns, names)


def files(dataset: Place) -> list[str]:
    """The paths of a data set."""
    if isinstance(dataset, str):
        return [dataset]
    return list(dataset.values() if isinstance(dataset, Mapping) else dataset)


@lru_cache(maxsize=2)  # an experiment is read several times: to check it, to run it, to tune it
def _read(
    stamps: tuple[tuple[str, int], ...],
    label: str,
    site: str | None,
    real: bool,
    alone: bool,
    features: tuple[str, ...] | None,
    names: tuple[str, ...] | None,
) -> Dataset:
    def one(path: str, width: int | None = None) -> Dataset:
        kind = Path(path).suffix
        if kind in TABLES:
            return TABLES[kind](path, label, site, real, features)
        if features is not None:
            raise data.DataError(f"{path}: its columns have no names; leave features out")
        return data.npz(path, real) if kind == ".npz" else data.libsvm(path, width, real)

    found = [one(path) for path, _ in stamps]
    sparse = [k for k, (path, _) in enumerate(stamps) if Path(path).suffix not in (*TABLES, ".npz")]
    width = max((one.shape[0] for one in found), default=0)
    for k in sparse:  # the last features of a site may all be 0 there
        found[k] = found[k] if found[k].shape == (width,) else one(stamps[k][0], width)
    return found[0] if alone else data.joined(found, names)


def found_at(dataset: Any, base: Path) -> str | list[str] | dict[str, str]:
    """The data set's name, or its file's whole path; of a list or a pattern, all of them.

    A table names the sites; so does what stands for {agent} in a pattern.
    """
    if isinstance(dataset, dict):
        if not dataset:
            raise wrong("is an empty table; name one site or more", "dataset")
        return {name: _file(path, base) for name, path in dataset.items()}
    if AGENT in str(dataset) and isinstance(dataset, str):
        return _numbered(dataset, base)
    if isinstance(dataset, list):
        if not dataset:
            raise wrong("is an empty list; name one file or more", "dataset")
        return [_file(name, base) for name in dataset]
    if dataset in KNOWN:
        return str(dataset)
    if any(c in str(dataset) for c in "*?[") and not (base / str(dataset)).is_file():
        found = sorted(glob(str(base / str(dataset)), recursive=True))
        if not found:
            raise wrong(f"no file matches {dataset!r}; correct the pattern", "dataset")
        return [os.path.normpath(path) for path in found]
    return _file(dataset, base)


def _numbered(pattern: str, base: Path) -> dict[str, str]:
    """The files of a pattern such as "site_{agent}.csv": by number, or by name."""
    if pattern.count(AGENT) > 1:
        raise wrong(f"has {AGENT} more than once; one of them names the site", "dataset")
    path = os.path.normpath(base / pattern)
    before, after = path.split(AGENT)
    found = glob(f"{escape(before)}*{escape(after)}")
    named = {one[len(before) : len(one) - len(after)]: one for one in found}
    if not named:
        raise wrong(f"no file matches {pattern!r}; correct the pattern", "dataset")
    if not all(name.isdecimal() for name in named):
        return dict(sorted(named.items()))
    numbers = sorted(map(int, named))
    if gap := sorted(set(range(numbers[0], numbers[-1])) - set(numbers)):
        said = f"matches files {numbers[0]} to {numbers[-1]}, but none numbered {gap[0]}"
        raise wrong(f"{said}; add it, or name the files in a list", "dataset")
    return dict(sorted(named.items(), key=lambda one: int(one[0])))


def _file(name: Any, base: Path) -> str:
    path = Path(os.path.normpath(base / str(name)))
    if not path.is_file():
        said = f"no data set {name!r} and no such file; {did_you_mean(str(name), KNOWN)}"
        raise wrong(said, "dataset")
    return str(path)
