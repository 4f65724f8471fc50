"""A data set by name or path, dealt out to the agents and split into their parts."""

import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from .. import data
from ..data import Dataset
from .mistakes import did_you_mean, several, within, wrong
from .options import parameters, read

KNOWN: dict[str, Callable[..., Dataset]] = {
    "a9a": data.a9a,
    "cifar10": data.cifar10,
    "digits": lambda folder=None: data.digits(),
    "ijcnn1": data.ijcnn1,
    "mnist": data.mnist,
}
PARTITIONS: dict[str, Callable[..., list[np.ndarray]]] = {
    "by_label": data.partition.by_label,
    "dirichlet": data.partition.dirichlet,
    "iid": data.partition.iid,
    "unequal": data.partition.unequal,
}
SHARES = (0.4, 0.4, 0.2)  # of training, validation and test rows
ALREADY = ("labels", "labels_or_n", "agents", "seed")  # what a partition is handed anyway


class Dealt(NamedTuple):
    """Every agent's rows of each part."""

    train: list[dict[str, np.ndarray]]
    valid: list[dict[str, np.ndarray]]
    test: list[dict[str, np.ndarray]]
    classes: int


def load(
    dataset: str, folder: str | None = None, label: str = "label", site: str | None = None
) -> Dataset:
    """The data set of that name, or the csv, npz or LIBSVM file at that path."""
    if dataset in KNOWN:
        return KNOWN[dataset](folder)
    kind = Path(dataset).suffix
    if kind == ".csv":
        return data.csv(dataset, label, site)
    return data.npz(dataset) if kind == ".npz" else data.libsvm(dataset)


def deal(
    dataset: str,
    agents: int = 9,
    partition: str | dict[str, Any] = "iid",
    shares: Sequence[float] = SHARES,
    rows: int | None = None,
    seed: int = 0,
    folder: str | None = None,
    label: str = "label",
    site: str | None = None,
) -> Dealt:
    """Training rows of `dataset` (all, or `rows` of them) over `agents`, as `partition` says.

    `shares` of each agent's rows are for training, validation and test. Of a csv file, `label`
    names the column of labels and `site` that of the agents, which then needs no partition.
    """
    found = load(dataset, folder, label, site)
    features, labels = found.train
    sites = found.sites
    if rows is not None:
        chosen = np.random.default_rng(seed).permutation(len(labels))[:rows]
        features, labels = features[chosen], labels[chosen]
        sites = None if sites is None else sites[chosen]
    if site is not None and sites is not None:
        parts = data.partition.by_column(sites)
    else:
        parts = dealer(partition)(labels, agents, seed=seed)
    split = data.partition.split(parts, shares, seed)
    train, valid, test = ([{"a": features[i], "b": labels[i]} for i in part] for part in split)
    return Dealt(train, valid, test, len(found.classes))


def dealable(given: Mapping[str, Any]) -> None:
    """Refuse numbers that no data set can be dealt by, whatever it holds."""
    found: list[tuple[tuple[str | int, ...], str, Any]] = []
    for name, least in (("agents", 1), ("rows", 1), ("seed", 0)):
        if isinstance(value := given.get(name), int) and value < least:
            found.append(((name,), f"must be a whole number, {least} or more, not {value}", value))
    shares = given.get("shares", SHARES)
    if _numbers(shares) and (len(shares) != 3 or min(shares) <= 0 or abs(sum(shares) - 1) > 1e-9):
        said = f"must be three numbers above 0 that add up to 1, as in {list(SHARES)}: the shares "
        found.append((("shares",), f"{said}of training, validation and test rows", shares))
    if found:
        raise several(found)


def _numbers(value: Any) -> bool:
    return isinstance(value, list | tuple) and all(isinstance(v, int | float) for v in value)


def dealer(partition: str | dict[str, Any]) -> Callable[..., list[np.ndarray]]:
    """The function that deals rows out: "iid", or {kind = "dirichlet", concentration = 0.3}."""
    return partition_options(partition)[0]


def partition_options(partition: Any) -> tuple[Callable[..., list[np.ndarray]], dict[str, Any]]:
    """That function, and the table that says it in full; mistakes are those of `partition`."""
    given = {"kind": partition} if isinstance(partition, str) else dict(partition)
    kind = given.pop("kind", None)
    if kind not in PARTITIONS:
        raise wrong(f"no partition {kind!r}; {did_you_mean(str(kind), PARTITIONS)}", "partition")
    taken = parameters(PARTITIONS[kind], without=ALREADY)
    options = within("partition", lambda: read(f"the partition {kind}", taken, given))
    return partial(PARTITIONS[kind], **options.objects), {"kind": kind, **options.spelled}


def found_at(dataset: Any, base: Path) -> str:
    """The data set's name, or its file's whole path."""
    if dataset in KNOWN:
        return str(dataset)
    path = Path(os.path.normpath(base / str(dataset)))
    if not path.is_file():
        said = f"no data set {dataset!r} and no such file; {did_you_mean(str(dataset), KNOWN)}"
        raise wrong(said, "dataset")
    return str(path)
