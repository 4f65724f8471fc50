"""Data sets by name or by path."""

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
AGENT = "{agent}"  # placeholder in a pattern of file names
Files = str | list[str] | dict[str, str]  # the same, as in a file
Place = str | Sequence[str] | Mapping[str, str]  # a name or path, several, or several by site


@dataclass(frozen=True)
class Columns:
    """Meaning of the columns in the user's files.

    `label` and `site` are columns of a table, `features` the columns to use, and `text` the column
    whose words are hashed into `hashed` features. If `real` is true, labels are numbers to regress
    on. `labels` are the classes in their order, by default those found in the files. `missing`
    cells are refused, dropped with their rows, or kept as NaN.
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
    """Load the data set of that name, or csv, npz, Parquet, LIBSVM or text files, one per site."""
    return several({"": dataset}, folder, columns)[""]


def several(
    places: Mapping[str, Place], folder: str | None, columns: Columns
) -> dict[str, Dataset]:
    """Load the data sets of several parts, with the same features and classes."""
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
    """Pair every file with its site: "" if the site has the file's name, None if it is no site."""
    if isinstance(place, str):
        return [(None, place)]
    return list(place.items() if isinstance(place, Mapping) else (("", path) for path in place))


def files(dataset: Place) -> list[str]:
    """Return the paths of a data set."""
    if isinstance(dataset, str):
        return [dataset]
    return list(dataset.values() if isinstance(dataset, Mapping) else dataset)


@lru_cache(maxsize=2)  # checking, running and tuning each read the experiment
def _read(
    stamps: tuple[tuple[str, str | None, str, int], ...], parts: tuple[str, ...], columns: Columns
) -> list[Dataset]:
    """Read one data set per part from all files of the part."""

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
    """Call all readers; if any fail, raise one error with the messages of all."""
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
    """Read the rows of one file."""
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
    """Return whether the file is LIBSVM text, which does not state the number of features."""
    return Path(path).suffix not in (*TABLES, ".npz") and not columns.hashed


def found_at(dataset: Any, base: Path, key: str = "dataset") -> str | list[str] | dict[str, str]:
    """Return the name of a data set or the full paths of its files, also of a list or a pattern.

    A table names the sites; in a pattern, the text that replaces {agent} does.
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
    """Find the files of a pattern such as "site_{agent}.csv", in numeric or alphabetical order."""
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
