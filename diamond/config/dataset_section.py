"""Data sets by name or by path."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from glob import escape, glob
from pathlib import Path
from typing import Any

from .. import data
from ..core.suggestions import did_you_mean
from ..data import Dataset
from ..data.csv_files import read_csv
from ..data.dataset import MOST_SHOWN
from ..data.parquet_files import read_parquet
from ..data.table_columns import Column, unite_columns
from ..data.table_rows import DataTable, TableOptions, read_dataset
from .validation_errors import config_error

DATASETS: dict[str, Callable[..., Dataset]] = {
    "a9a": data.a9a,
    "cifar10": data.cifar10,
    "digits": lambda folder=None: data.digits(),
    "ijcnn1": data.ijcnn1,
    "mnist": data.mnist,
}

TABLE_READERS: dict[str, Callable[[Path, str], DataTable]] = {
    ".csv": read_csv,
    ".tsv": read_csv,
    ".parquet": lambda path, label: read_parquet(path),
}
AGENT_PLACEHOLDER = "{agent}"  # placeholder in a pattern of file names
Files = str | list[str] | dict[str, str]  # the same, as in a file
DataLocation = (
    str | Sequence[str] | Mapping[str, str]
)  # a name or path, several, or several by site


@dataclass(frozen=True)
class Columns(TableOptions):
    """Meaning of the columns in the user's files, hashable: sequences and mappings are tuples.

    `labels` are the classes in their order, by default those found in the files.
    """

    labels: tuple[str, ...] | None = None


def load_dataset(dataset: DataLocation, folder: str | None, columns: Columns) -> Dataset:
    """Load the data set of that name, or csv, npz, Parquet, LIBSVM or text files, one per site."""
    return load_parts({"": dataset}, folder, columns)[""]


def load_parts(
    places: Mapping[str, DataLocation], folder: str | None, columns: Columns
) -> dict[str, Dataset]:
    """Load the data sets of several parts, with the same features and classes."""
    built_in = [name for name in places.values() if isinstance(name, str) and name in DATASETS]
    if built_in:
        if columns.real:
            raise data.DataError(f"{built_in[0]} has classes; take a problem that takes classes")
        if len(places) > 1:
            raise data.DataError(f"{built_in[0]} is one data set; name it by dataset")
        return {part: DATASETS[built_in[0]](folder) for part in places}
    stamps = tuple(
        (part, site, path, os.stat(path).st_mtime_ns)
        for part, place in places.items()
        for site, path in _files_by_site(place)
    )
    return dict(zip(places, _read_files(stamps, tuple(places), columns), strict=True))


def _files_by_site(place: DataLocation) -> list[tuple[str | None, str]]:
    """Pair every file with its site: "" if the site has the file's name, None if it is no site."""
    if isinstance(place, str):
        return [(None, place)]
    return list(place.items() if isinstance(place, Mapping) else (("", path) for path in place))


def file_paths(dataset: DataLocation) -> list[str]:
    """Return the paths of a data set."""
    if isinstance(dataset, str):
        return [dataset]
    return list(dataset.values() if isinstance(dataset, Mapping) else dataset)


@lru_cache(maxsize=2)  # checking, running and tuning each read the experiment
def _read_files(
    stamps: tuple[tuple[str, str | None, str, int], ...], parts: tuple[str, ...], columns: Columns
) -> list[Dataset]:
    """Read one data set per part from all files of the part."""

    def read_one(
        site: str | None,
        path: str,
        width: int | None = None,
        united: Sequence[Column] | None = None,
    ) -> Dataset:
        try:
            return _read_file(path, columns, width, united)
        except data.DataError as cause:
            raise data.DataError(f"site {site}: {cause}" if site else str(cause)) from None

    datasets = _read_all([partial(read_one, site, path) for _, site, path, _ in stamps])
    width = max((read_one.shape[0] for read_one in datasets), default=0)
    is_table = all(dataset.columns for dataset in datasets)
    united = is_table and unite_columns(
        [dataset.columns for dataset in datasets],
        [dataset.train[0] for dataset in datasets],
        [dataset.files[0] for dataset in datasets],
    )
    for k, (_, site, path, _) in enumerate(stamps):  # the last features may all be 0 in a file
        if _is_libsvm(path, columns) and datasets[k].shape != (width,):
            datasets[k] = read_one(site, path, width)
        elif united and datasets[k].columns != united:
            datasets[k] = read_one(site, path, None, united)
    joined_sets = []
    for part in parts:
        indices = [k for k, stamp in enumerate(stamps) if stamp[0] == part]
        sites = [stamps[k][1] for k in indices]
        site_names = [site for site in sites if site]
        is_single_file = sites == [None]
        joined_sets.append(
            datasets[indices[0]]
            if is_single_file
            else data.join_files([datasets[k] for k in indices], site_names)
        )
    return data.align_classes(joined_sets, columns.labels)


def _read_all(readers: Sequence[Callable[[], Dataset]]) -> list[Dataset]:
    """Call all readers; if any fail, raise one error with the messages of all."""
    datasets, messages = [], []
    for read in readers:
        try:
            datasets.append(read())
        except data.DataError as cause:
            messages.append(str(cause))
    if messages:
        more = (
            [f"and {len(messages) - MOST_SHOWN} more files"] if len(messages) > MOST_SHOWN else []
        )
        raise data.DataError("\n    ".join([*messages[:MOST_SHOWN], *more]))
    return datasets


def _read_file(
    path: str, columns: Columns, width: int | None, united: Sequence[Column] | None
) -> Dataset:
    """Read the rows of one file; `united` are the columns of all files, once they are known."""
    kind, real, hashed = Path(path).suffix, columns.real, columns.hashed
    if kind in TABLE_READERS:
        table = TABLE_READERS[kind](Path(path), columns.label)
        return read_dataset(table, replace(columns, columns=united))
    if columns.levels:
        raise data.DataError(f"{path}: its columns have no names; leave levels out")
    if columns.features is not None:
        raise data.DataError(f"{path}: its columns have no names; leave features out")
    if hashed and kind != ".npz":
        return data.lines(path, hashed, real)
    if kind == ".npz":
        return data.npz(path, real, columns.missing_values)
    return data.libsvm(path, width, real)


def _is_libsvm(path: str, columns: Columns) -> bool:
    """Return whether the file is LIBSVM text, which does not state the number of features."""
    return Path(path).suffix not in (*TABLE_READERS, ".npz") and not columns.hashed


def resolve_paths(
    dataset: Any, base: Path, key: str = "dataset"
) -> str | list[str] | dict[str, str]:
    """Return the name of a data set or the full paths of its files, also of a list or a pattern.

    A table names the sites; in a pattern, the text that replaces {agent} does.
    """
    if isinstance(dataset, dict):
        if not dataset:
            raise config_error("is an empty table; name one site or more", key)
        return {name: _require_file(path, base, key) for name, path in dataset.items()}
    if AGENT_PLACEHOLDER in str(dataset) and isinstance(dataset, str):
        return _match_agent_pattern(dataset, base, key)
    if isinstance(dataset, list):
        if not dataset:
            raise config_error("is an empty list; name one file or more", key)
        return [_require_file(name, base, key) for name in dataset]
    if dataset in DATASETS:
        return str(dataset)
    if any(c in str(dataset) for c in "*?[") and not (base / str(dataset)).is_file():
        paths = sorted(glob(str(base / str(dataset)), recursive=True))
        if not paths:
            raise config_error(f"no file matches {dataset!r}; correct the pattern", key)
        return [os.path.normpath(path) for path in paths]
    return _require_file(dataset, base, key)


def _match_agent_pattern(pattern: str, base: Path, key: str) -> dict[str, str]:
    """Find the files of a pattern such as "site_{agent}.csv", in numeric or alphabetical order."""
    if pattern.count(AGENT_PLACEHOLDER) > 1:
        raise config_error(
            f"has {AGENT_PLACEHOLDER} more than once; one of them names the site", key
        )
    path = os.path.normpath(base / pattern)
    before, after = path.split(AGENT_PLACEHOLDER)
    matches = glob(f"{escape(before)}*{escape(after)}")
    path_by_name = {match[len(before) : len(match) - len(after)]: match for match in matches}
    if not path_by_name:
        raise config_error(f"no file matches {pattern!r}; correct the pattern", key)
    if not all(name.isdecimal() for name in path_by_name):
        return dict(sorted(path_by_name.items()))
    numbers = sorted(map(int, path_by_name))
    if gap := sorted(set(range(numbers[0], numbers[-1])) - set(numbers)):
        message = f"matches files {numbers[0]} to {numbers[-1]}, but none numbered {gap[0]}"
        raise config_error(f"{message}; add it, or name the files in a list", key)
    return dict(sorted(path_by_name.items(), key=lambda match: int(match[0])))


def _require_file(name: Any, base: Path, key: str) -> str:
    path = Path(os.path.normpath(base / str(name)))
    if not path.is_file():
        message = f"no data set {name!r} and no such file; {did_you_mean(str(name), DATASETS)}"
        raise config_error(message, key)
    return str(path)
