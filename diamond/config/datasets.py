"""Data sets by name or by path: found, and read."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from glob import escape, glob
from pathlib import Path
from typing import Any, Literal

from .. import data
from ..core.suggestions import did_you_mean
from ..data import Dataset
from ..data.dataset import SHOWN
from .validation_errors import wrong

KNOWN: dict[str, Callable[..., Dataset]] = {
    "a9a": data.a9a,
    "cifar10": data.cifar10,
    "digits": lambda folder=None: data.digits(),
    "ijcnn1": data.ijcnn1,
    "mnist": data.mnist,
}

TABLES: dict[str, Callable[..., Dataset]] = {
    ".csv": data.csv,
    ".tsv": data.csv,
    ".parquet": data.parquet,
}
AGENT = "{agent}"  # in a pattern
Files = str | list[str] | dict[str, str]  # as a file says them: a name or a path, ...
Place = str | Sequence[str] | Mapping[str, str]  # a name or a path, several, or several by site


@dataclass(frozen=True)
class Columns:
    """What is what in the user's files.

    `label` and `site` are columns of a table, `features` those to use, `text` the one whose words
    become `hashed` features; `real`: labels are numbers to regress on. `labels` are the classes in
    their order, those found in the files by default. `missing` cells are refused, dropped with
    their rows, or kept as not-a-number.
    """

    label: str = "label"
    site: str | None = None
    real: bool = False
    features: tuple[str, ...] | None = None
    hashed: int | None = None
    text: str = "text"
    labels: tuple[str, ...] | None = None
    missing: Literal["refuse", "drop", "keep"] = "refuse"


def load(dataset: Place, folder: str | None, columns: Columns) -> Dataset:
    """The data set of that name, or the csv, npz, Parquet, LIBSVM or text files, each a site."""
    return several({"": dataset}, folder, columns)[""]


def several(
    places: Mapping[str, Place], folder: str | None, columns: Columns
) -> dict[str, Dataset]:
    """The data sets of several parts, with the same features and classes."""
    known = [name for name in places.values() if isinstance(name, str) and name in KNOWN]
    if known:
        if columns.real:
            raise data.DataError(f"{known[0]} has classes; take a problem that takes classes")
        if len(places) > 1:
            raise data.DataError(f"{known[0]} is one data set; name it by dataset")
        return {part: KNOWN[known[0]](folder) for part in places}
    stamps = tuple(
        (part, site, path, os.stat(path).st_mtime_ns)
        for part, place in places.items()
        for site, path in _by_site(place)
    )
    return dict(zip(places, _read(stamps, tuple(places), columns), strict=True))


def _by_site(place: Place) -> list[tuple[str | None, str]]:
    """Every file with its site, "" where that is the file's name; None: the file is no site."""
    if isinstance(place, str):
        return [(None, place)]
    return list(place.items() if isinstance(place, Mapping) else (("", path) for path in place))


def files(dataset: Place) -> list[str]:
    """The paths of a data set."""
    if isinstance(dataset, str):
        return [dataset]
    return list(dataset.values() if isinstance(dataset, Mapping) else dataset)


@lru_cache(maxsize=2)  # an experiment is read several times: to check it, to run it, to tune it
def _read(
    stamps: tuple[tuple[str, str | None, str, int], ...], parts: tuple[str, ...], columns: Columns
) -> list[Dataset]:
    """One data set a part, of all files of it."""

    def one(site: str | None, path: str, width: int | None = None) -> Dataset:
        try:
            return _file_of(path, columns, width)
        except data.DataError as cause:
            raise data.DataError(f"site {site}: {cause}" if site else str(cause)) from None

    found = _all_or_every_error([partial(one, site, path) for _, site, path, _ in stamps])
    width = max((one.shape[0] for one in found), default=0)
    for k, (_, site, path, _) in enumerate(stamps):  # the last features may all be 0 in a file
        if _sparse(path, columns) and found[k].shape != (width,):
            found[k] = one(site, path, width)
    sets = []
    for part in parts:
        own = [k for k, stamp in enumerate(stamps) if stamp[0] == part]
        sites = [stamps[k][1] for k in own]
        named = [site for site in sites if site]
        alone = sites == [None]
        sets.append(found[own[0]] if alone else data.joined([found[k] for k in own], named))
    return data.alike(sets, columns.labels)


def _all_or_every_error(readers: Sequence[Callable[[], Dataset]]) -> list[Dataset]:
    """What all readers return; if any of them fail, one error with the messages of all."""
    found, said = [], []
    for read in readers:
        try:
            found.append(read())
        except data.DataError as cause:
            said.append(str(cause))
    if said:
        more = [f"and {len(said) - SHOWN} more files"] if len(said) > SHOWN else []
        raise data.DataError("\n    ".join([*said[:SHOWN], *more]))
    return found


def _file_of(path: str, columns: Columns, width: int | None) -> Dataset:
    """The rows of one file."""
    kind, real, hashed = Path(path).suffix, columns.real, columns.hashed
    if kind in TABLES:
        used = columns.features, hashed, columns.text, columns.missing
        return TABLES[kind](path, columns.label, columns.site, real, *used)
    if columns.features is not None:
        raise data.DataError(f"{path}: its columns have no names; leave features out")
    if hashed and kind != ".npz":
        return data.lines(path, hashed, real)
    return (
        data.npz(path, real, columns.missing) if kind == ".npz" else data.libsvm(path, width, real)
    )


def _sparse(path: str, columns: Columns) -> bool:
    """Whether the file is LIBSVM text, which does not say how many features there are."""
    return Path(path).suffix not in (*TABLES, ".npz") and not columns.hashed


def found_at(dataset: Any, base: Path, key: str = "dataset") -> str | list[str] | dict[str, str]:
    """The data set's name, or its file's whole path; of a list or a pattern, all of them.

    A table names the sites; so does what stands for {agent} in a pattern.
    """
    if isinstance(dataset, dict):
        if not dataset:
            raise wrong("is an empty table; name one site or more", key)
        return {name: _file(path, base, key) for name, path in dataset.items()}
    if AGENT in str(dataset) and isinstance(dataset, str):
        return _numbered(dataset, base, key)
    if isinstance(dataset, list):
        if not dataset:
            raise wrong("is an empty list; name one file or more", key)
        return [_file(name, base, key) for name in dataset]
    if dataset in KNOWN:
        return str(dataset)
    if any(c in str(dataset) for c in "*?[") and not (base / str(dataset)).is_file():
        found = sorted(glob(str(base / str(dataset)), recursive=True))
        if not found:
            raise wrong(f"no file matches {dataset!r}; correct the pattern", key)
        return [os.path.normpath(path) for path in found]
    return _file(dataset, base, key)


def _numbered(pattern: str, base: Path, key: str) -> dict[str, str]:
    """The files of a pattern such as "site_{agent}.csv": by number, or by name."""
    if pattern.count(AGENT) > 1:
        raise wrong(f"has {AGENT} more than once; one of them names the site", key)
    path = os.path.normpath(base / pattern)
    before, after = path.split(AGENT)
    found = glob(f"{escape(before)}*{escape(after)}")
    named = {one[len(before) : len(one) - len(after)]: one for one in found}
    if not named:
        raise wrong(f"no file matches {pattern!r}; correct the pattern", key)
    if not all(name.isdecimal() for name in named):
        return dict(sorted(named.items()))
    numbers = sorted(map(int, named))
    if gap := sorted(set(range(numbers[0], numbers[-1])) - set(numbers)):
        said = f"matches files {numbers[0]} to {numbers[-1]}, but none numbered {gap[0]}"
        raise wrong(f"{said}; add it, or name the files in a list", key)
    return dict(sorted(named.items(), key=lambda one: int(one[0])))


def _file(name: Any, base: Path, key: str) -> str:
    path = Path(os.path.normpath(base / str(name)))
    if not path.is_file():
        said = f"no data set {name!r} and no such file; {did_you_mean(str(name), KNOWN)}"
        raise wrong(said, key)
    return str(path)
