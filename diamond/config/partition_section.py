"""Assignment of a data set's rows to agents, and splits for training, validation and test."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from functools import partial
from typing import Any, Literal, NamedTuple

import numpy as np

from .. import data
from ..core.suggestions import did_you_mean
from ..data import Dataset
from ..data.dataset import MissingCells
from ..data.hashed_text import NO_WORDS, mark_unused
from ..data.missing_values import (
    MissingValues,
    Reading,
    count_missing,
    describe_missing,
    fill_missing,
    parse_rule,
)
from ..data.standardize import federated, told
from .components import spec
from .dataset_section import Columns, Files, several
from .options import parameters, read
from .validation_errors import within, wrong

PARTITIONS: dict[str, Callable[..., list[np.ndarray]]] = {
    "by_label": data.partition.by_label,
    "dirichlet": data.partition.dirichlet,
    "iid": data.partition.iid,
    "unequal": data.partition.unequal,
}
PARTS = ("train", "valid", "test")
MISSING: dict[Reading, Literal["refuse", "drop", "keep"]] = {
    Reading(): "refuse",
    Reading(drops=True): "drop",
    Reading(keeps=True): "keep",
}
SHARES = (0.4, 0.4, 0.2)  # shares of training, validation and test rows
IID, AGENTS = "iid", 9  # defaults
ALREADY = ("labels", "labels_or_n", "agents", "seed")  # arguments that the caller supplies


class Partition(NamedTuple):
    """Rows of every agent in each part."""

    train: list[dict[str, np.ndarray]]
    valid: list[dict[str, np.ndarray]]
    test: list[dict[str, np.ndarray]] | None  # None if separate files omit it
    classes: int
    names: tuple[str, ...]  # names of the features, if any
    sites: tuple[str, ...]  # names of the agents, if sites are agents
    notes: list[str]  # filled or dropped missing values, features without a word


def partition_rows(
    dataset: Files | None = None,
    agents: int | None = None,
    partition: str | dict[str, Any] | None = None,
    shares: Sequence[float] = SHARES,
    rows: int | None = None,
    seed: int = 0,
    folder: str | None = None,
    label: str = "label",
    site: str | None = None,
    features: list[str] | None = None,
    scale: Literal["none", "standard"] | dict[str, list[float]] = "none",
    train: Files | None = None,
    valid: Files | None = None,
    test: Files | None = None,
    hashed: int | None = None,
    text: str = "text",
    labels: list[str] | list[int] | None = None,
    missing_values: Literal["refuse", "drop", "mean"] | float | dict[str, float] = "refuse",
    real: bool = False,
    first: int = 0,
) -> Partition:
    """Assign the training rows of `dataset`, all or `rows` of them, to the agents.

    If there are sites, each site is an agent: several files are one site each, a csv file may have
    a column `site`, an npz file an array `sites`. Otherwise `partition` (default "iid") assigns the
    rows to `agents` (default 9).

    `shares` of each agent's rows are for training, validation and test, unless `train`, `valid` and
    perhaps `test` name separate files. In a table, `label` is the column of labels, `features` are
    the columns to use, and the words of the column `text` are hashed into `hashed` features. `real`
    labels are numbers to regress on; other labels become classes in the order of `labels`.

    `scale` "standard" subtracts the mean of every feature and divides by its standard deviation,
    both over the training rows of all agents, who share only sums; a table gives [mean, deviation]
    by feature. `missing_values` are refused, dropped with their rows ("drop"), or filled before
    scaling: by the "mean" of the column over the agent's own training rows, by one number, or by a
    number for each column. `first` is the number of the first agent.
    """
    places = {"train": train, "valid": valid, "test": test} if dataset is None else {"": dataset}
    given = {part: place for part, place in places.items() if place is not None}
    said: dict[str, Any] = {"label": label, "site": site, "real": real, "features": features}
    said |= {"hashed": hashed, "text": text, "labels": labels, "missing_values": missing_values}
    found = several(given, folder, columns_of(said))
    if rows is not None:
        found = {part: sample_rows(one, rows, seed) for part, one in found.items()}
    one = next(iter(found.values()))
    own = {part: _agents(each, one.places, partition, agents, seed) for part, each in found.items()}
    if dataset is not None:
        cut = data.partition.split(own[""], shares, seed, first)
        found, own = dict.fromkeys(PARTS, one), dict(zip(PARTS, cut, strict=True))
    sites = one.places if one.sites is not None and partition is None else ()
    called = sites or [f"agent {first + k}" for k in range(len(own["train"]))]
    tables = {part: [each.train[0][i] for i in own[part]] for part, each in found.items()}
    dropped = [one] if dataset is not None else found.values()
    missing = [cells for each in dropped for cells in each.missing]
    if parse_rule(missing_values).keeps:
        tables, missing = _fill_agents(tables, one.names, missing_values, called)
    scaled = _scale(scale, tables["train"], one.names)
    made = {
        part: [
            {"a": scaled(rows), "b": each.train[1][i]} for rows, i in zip(tables[part], own[part])
        ]
        for part, each in found.items()
    }
    names, notes = one.names, describe_missing(missing, missing_values)
    if hashed and len(called) > 1:  # one site alone cannot tell: others may have the words
        names, empty = mark_unused(names, [*tables["train"], *tables["valid"]], hashed)
        notes += [f"{empty} of the {hashed} features of {text} {NO_WORDS}"] if empty else []
    about = len(one.classes), names, sites, notes
    return Partition(made["train"], made["valid"], made.get("test"), *about)


def _fill_agents(
    tables: Mapping[str, list[np.ndarray]],
    names: Sequence[str],
    rule: MissingValues,
    agents: Sequence[str],
) -> tuple[dict[str, list[np.ndarray]], list[MissingCells]]:
    """Fill missing cells in every agent's features of all parts, and count them."""
    order = [part for part in PARTS if part in tables]  # training rows first
    each = [[tables[part][k] for part in order] for k in range(len(agents))]
    counts = [count_missing(own, names, agent) for own, agent in zip(each, agents)]
    whole = [fill_missing(own, names, rule, agent) for own, agent in zip(each, agents)]
    return dict(zip(order, map(list, zip(*whole)))), counts


def _scale(scale: Any, train: Sequence[np.ndarray], names: Sequence[str]) -> Callable[[Any], Any]:
    """Return the scaling of features: by the training rows of all agents, by a table, or none."""
    if scale == "standard":
        return federated(train).__call__
    return told(scale, names).__call__ if scale != "none" else lambda table: table


def sample_rows(found: Dataset, rows: int, seed: int) -> Dataset:
    """Draw `rows` rows of the data set at random."""
    chosen = np.random.default_rng(seed).permutation(len(found.train[1]))[:rows]
    sites = None if found.sites is None else found.sites[chosen]
    return replace(found, train=(found.train[0][chosen], found.train[1][chosen]), sites=sites)


def _agents(
    found: Dataset, places: Sequence[str], partition: Any, agents: int | None, seed: int
) -> list[np.ndarray]:
    """Return each agent's rows: those of its site, in the order of `places`, or a partition."""
    if found.sites is None or partition is not None:
        return partition_options(partition or IID)[0](found.train[1], agents or AGENTS, seed=seed)
    order = places if {*places} == {*found.places} else found.places  # match by name, or by order
    return [np.flatnonzero(found.sites == place) for place in order]


def columns_of(given: Mapping[str, Any]) -> Columns:
    """Return the columns of the files from the options of `partition_rows`."""
    names = [field.name for field in fields(Columns)]
    found = {k: given[k] for k in names if given.get(k) is not None}
    for key in ("features", "labels"):
        if key in found:
            found[key] = tuple(map(str, found[key]))
    rule = parse_rule(given.get("missing_values", "refuse"))
    return Columns(**found | {"missing": MISSING[rule]})


def partition_options(partition: Any) -> tuple[Callable[..., list[np.ndarray]], dict[str, Any]]:
    """Return the function that assigns rows to agents, and its table with all options.

    `partition` is such a table, as {kind = "dirichlet", concentration = 0.3}, or in short "iid",
    "dirichlet:concentration=0.3", "by_label:2".
    """
    given = spec(partition, "kind") if isinstance(partition, str) else dict(partition)
    kind, positions = given.pop("kind", None), given.pop("", [])
    if kind not in PARTITIONS:
        raise wrong(f"no partition {kind!r}; {did_you_mean(str(kind), PARTITIONS)}", "partition")
    taken = parameters(PARTITIONS[kind], without=ALREADY)
    if len(positions) > len(taken):
        said = f"{partition!r} gives more numbers than {kind} takes ({', '.join(taken) or 'none'})"
        raise wrong(said, "partition")
    given = dict(zip(taken, positions)) | given
    options = within("partition", lambda: read(f"the partition {kind}", taken, given))
    return partial(PARTITIONS[kind], **options.objects), {"kind": kind, **options.spelled}
