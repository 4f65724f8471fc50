"""Data sets by name or by path: found, and read."""

import os
from collections.abc import Callable, Sequence
from functools import lru_cache
from glob import glob
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


def load(
    dataset: str | Sequence[str],
    folder: str | None = None,
    label: str = "label",
    site: str | None = None,
    real: bool = False,
) -> Dataset:
    """The data set of that name, or the csv, npz or LIBSVM files at these paths, each a site.

    `real`: labels are numbers to regress on.
    """
    if isinstance(dataset, str) and dataset in KNOWN:
        if real:
            raise data.DataError(f"{dataset} has classes; take a problem that takes classes")
        return KNOWN[dataset](folder)
    paths = [dataset] if isinstance(dataset, str) else list(dataset)
    stamps = tuple((path, os.stat(path).st_mtime_ns) for path in paths)
    return _read(stamps, label, site, real, isinstance(dataset, str))


@lru_cache(maxsize=2)  # an experiment is read several times: to check it, to run it, to tune it
def _read(
    stamps: tuple[tuple[str, int], ...], label: str, site: str | None, real: bool, alone: bool
) -> Dataset:
    def one(path: str) -> Dataset:
        kind = Path(path).suffix
        if kind == ".csv":
            return data.csv(path, label, site, real)
        return data.npz(path, real) if kind == ".npz" else data.libsvm(path, real=real)

    found = [one(path) for path, _ in stamps]
    return found[0] if alone else data.joined(found)


def found_at(dataset: Any, base: Path) -> str | list[str]:
    """The data set's name, or its file's whole path; of a list or a pattern, all of them."""
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


def _file(name: Any, base: Path) -> str:
    path = Path(os.path.normpath(base / str(name)))
    if not path.is_file():
        said = f"no data set {name!r} and no such file; {did_you_mean(str(name), KNOWN)}"
        raise wrong(said, "dataset")
    return str(path)
