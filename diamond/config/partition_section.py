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
    CellTreatment,
    MissingValues,
    count_missing,
    describe_missing,
    fill_missing,
    parse_treatment,
)
from ..data.preparation import Preparation, make_preparation
from ..data.standardize import FeatureScale, federated_scale, parse_scale
from ..data.table_columns import Categories, Column, describe_united_levels
from .components import parse_spec
from .dataset_section import Columns, Files, load_parts
from .options import parameters, parse_options
from .validation_errors import config_error, nest_errors

PARTITIONS: dict[str, Callable[..., list[np.ndarray]]] = {
    "by_label": data.partition.by_label,
    "dirichlet": data.partition.dirichlet,
    "iid": data.partition.iid,
    "unequal": data.partition.unequal,
}
PARTS = ("train", "valid", "test")
MISSING_CELLS: dict[CellTreatment, Literal["refuse", "drop", "keep"]] = {
    CellTreatment(): "refuse",
    CellTreatment(drops=True): "drop",
    CellTreatment(keeps=True): "keep",
}
SHARES = (0.4, 0.4, 0.2)  # shares of training, validation and test rows
IID, AGENTS = "iid", 9  # defaults
SUPPLIED = ("labels", "labels_or_n", "agents", "seed")  # arguments that the caller supplies


class Partition(NamedTuple):
    """Rows of every agent in each part."""

    train: list[dict[str, np.ndarray]]
    valid: list[dict[str, np.ndarray]]
    test: list[dict[str, np.ndarray]] | None  # None if separate files omit it
    classes: int
    names: tuple[str, ...]  # names of the features, if any
    sites: tuple[str, ...]  # names of the agents, if sites are agents
    notes: list[str]  # filled or dropped missing values, features without a word
    class_names: tuple[str, ...]
    preparation: Preparation


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
    categories: Categories = "refuse",
    levels: dict[str, list[str]] | None = None,
    real: bool = False,
    first: int = 0,
) -> Partition:
    """Assign the training rows of `dataset`, all or `rows` of them, to the agents.

    If there are sites, each site is an agent: several files are one site each, a csv file may have
    a column `site`, an npz file an array `sites`. Otherwise `partition` assigns the rows.

    Args:
        dataset: Data set: digits, mnist, cifar10, a9a, ijcnn1; a .csv, .tsv, .parquet, .npz or
            LIBSVM file; or several files, one per site: a list, a pattern such as
            "site_{agent}.csv" or "sites/*.csv", or a table {north = "n.csv", south = "s.csv"}.
        agents: Number of agents; by default the number of sites, or 9.
        partition: Assignment of rows to agents where there are no sites: iid (the default),
            by_label, dirichlet or unequal, as text or as a table.
        shares: Shares of each agent's rows for training, validation and test.
        rows: Number of rows to use, drawn at random; by default all.
        seed: Seed of the drawn rows, the partition and the shares.
        folder: Folder of mnist and the other data sets; by default DIAMOND_DATA, or a download.
        label: Column of the labels or targets in a table.
        site: Column of a table that names the site of each row.
        features: Columns of a table to use as features; by default all others.
        scale: "standard" subtracts the mean of every feature and divides by its standard deviation,
            both over the training rows of all agents, who share only sums; a table gives the [mean,
            deviation] of each feature.
        train: File or files of the training rows, instead of `dataset`.
        valid: File or files of the validation rows.
        test: File or files of the test rows; may be absent.
        hashed: Number of features to hash the words of the text column into.
        text: Column of the text in a table.
        labels: All classes in their order; by default those found.
        missing_values: Treatment of missing values: refused, dropped with their rows ("drop"), or
            filled before scaling: by the "mean" of the column over the agent's own training rows,
            by one number, or by a number for each feature.
        categories: Treatment of columns of text: refused, or "one_hot": one feature per level, such
            as `sex=F`. Levels that are not declared are those of all sites, which this discloses.
        levels: Levels of columns to be one-hot coded, as in {sex = ["F", "M"]}; sites that run as
            processes need them.
        real: Whether labels are numbers to regress on.
        first: Number of the first agent.
    """
    columns = parse_columns(locals())
    places = {"train": train, "valid": valid, "test": test} if dataset is None else {"": dataset}
    locations = {part: place for part, place in places.items() if place is not None}
    datasets = load_parts(locations, folder, columns)
    if rows is not None:
        datasets = {part: sample_rows(source, rows, seed) for part, source in datasets.items()}
    first_source = next(iter(datasets.values()))
    rows_of = {
        part: _rows_by_agent(source, first_source.places, partition, agents, seed=seed)
        for part, source in datasets.items()
    }
    if dataset is not None:
        splits = data.partition.split(rows_of[""], shares, seed, first)
        datasets = dict.fromkeys(PARTS, first_source)
        rows_of = dict(zip(PARTS, splits, strict=True))
    sites = first_source.places if first_source.sites is not None and partition is None else ()
    agent_names = sites or [f"agent {first + k}" for k in range(len(rows_of["train"]))]
    features_by_part = {
        part: [source.train[0][i] for i in rows_of[part]] for part, source in datasets.items()
    }
    dropped = [first_source] if dataset is not None else datasets.values()
    missing = [cells for source in dropped for cells in source.missing]
    fills: list[np.ndarray] = []
    if parse_treatment(missing_values).keeps:
        features_by_part, missing, fills = _fill_agents(
            features_by_part, first_source, missing_values, agent_names
        )
    names, classes = first_source.names, first_source.classes
    scaling = _scale(scale, features_by_part["train"], names)
    preparation = make_preparation(
        _columns_of(first_source, hashed),
        label,
        classes,
        scale=scaling,
        fills=fills,
    )
    rows_by_part = {
        part: [
            {"a": preparation.scaled(rows), "b": source.train[1][i]}
            for rows, i in zip(features_by_part[part], rows_of[part])
        ]
        for part, source in datasets.items()
    }
    notes = describe_missing(missing, missing_values)
    if hashed and len(agent_names) > 1:  # one site alone cannot tell: others may have the words
        names, empty = mark_unused(
            names, [*features_by_part["train"], *features_by_part["valid"]], hashed
        )
        notes += [f"{empty} of the {hashed} features of {text} {NO_WORDS}"] if empty else []
    notes += preparation.describe_unscaled_dates()
    if len(sites) > 1:
        notes += describe_united_levels(preparation.columns, levels or {})
    return Partition(
        rows_by_part["train"],
        rows_by_part["valid"],
        rows_by_part.get("test"),
        len(classes),
        tuple(names or ()),
        sites,
        notes,
        classes,
        preparation,
    )


def _columns_of(dataset: Dataset, hashed: int | None) -> tuple[Column, ...]:
    """Return the columns of the features, numbered if they have no names."""
    if dataset.columns:
        return dataset.columns
    if dataset.names and hashed:
        return (Column("text", "text", (), hashed),)
    width = dataset.train[0].shape[1]
    return tuple(Column(f"feature {k + 1}") for k in range(width))


def _fill_agents(
    tables: Mapping[str, list[np.ndarray]],
    dataset: Dataset,
    treatment: MissingValues,
    agents: Sequence[str],
) -> tuple[dict[str, list[np.ndarray]], list[MissingCells], list[np.ndarray]]:
    """Fill missing cells in every agent's features of all parts; also return counts and values."""
    order = [part for part in PARTS if part in tables]  # training rows first
    parts_by_agent = [[tables[part][k] for part in order] for k in range(len(agents))]
    counts = [
        count_missing(agent_parts, dataset.owners, agent)
        for agent_parts, agent in zip(parts_by_agent, agents)
    ]
    filled, values = zip(
        *(
            fill_missing(agent_parts, dataset.names, treatment, agent)
            for agent_parts, agent in zip(parts_by_agent, agents)
        )
    )
    return dict(zip(order, map(list, zip(*filled)))), counts, list(values)


def _scale(scale: Any, train: Sequence[np.ndarray], names: Sequence[str]) -> FeatureScale | None:
    """Return the scaling of features: by the training rows of all agents, by a table, or none."""
    if scale == "standard":
        return federated_scale(train)
    return parse_scale(scale, names) if scale != "none" else None


def sample_rows(dataset: Dataset, rows: int, seed: int) -> Dataset:
    """Draw `rows` rows of the data set at random."""
    indices = np.random.default_rng(seed).permutation(len(dataset.train[1]))[:rows]
    sites = None if dataset.sites is None else dataset.sites[indices]
    return replace(
        dataset, train=(dataset.train[0][indices], dataset.train[1][indices]), sites=sites
    )


def _rows_by_agent(
    dataset: Dataset, places: Sequence[str], partition: Any, agents: int | None, *, seed: int
) -> list[np.ndarray]:
    """Return each agent's rows: those of its site, in the order of `places`, or a partition."""
    if dataset.sites is None or partition is not None:
        return partition_options(partition or IID)[0](dataset.train[1], agents or AGENTS, seed=seed)
    order = (
        places if {*places} == {*dataset.places} else dataset.places
    )  # match by name, or by order
    return [np.flatnonzero(dataset.sites == place) for place in order]


def parse_columns(options: Mapping[str, Any]) -> Columns:
    """Return the columns of the files from the options of `partition_rows`."""
    names = [field.name for field in fields(Columns)]
    columns = {k: options[k] for k in names if options.get(k) is not None}
    for key in ("features", "labels"):
        if key in columns:
            columns[key] = tuple(map(str, columns[key]))
    columns["levels"] = tuple((k, tuple(v)) for k, v in (options.get("levels") or {}).items())
    treatment = parse_treatment(options.get("missing_values", "refuse"))
    return Columns(**columns | {"missing_values": MISSING_CELLS[treatment]})


def partition_options(partition: Any) -> tuple[Callable[..., list[np.ndarray]], dict[str, Any]]:
    """Return the function that assigns rows to agents, and its table with all options.

    `partition` is such a table, as {kind = "dirichlet", concentration = 0.3}, or in short "iid",
    "dirichlet:concentration=0.3", "by_label:2".
    """
    table = parse_spec(partition, "kind") if isinstance(partition, str) else dict(partition)
    kind, positions = table.pop("kind", None), table.pop("", [])
    if kind not in PARTITIONS:
        raise config_error(
            f"no partition {kind!r}; {did_you_mean(str(kind), PARTITIONS)}", "partition"
        )
    taken = parameters(PARTITIONS[kind], without=SUPPLIED)
    if len(positions) > len(taken):
        message = (
            f"{partition!r} gives more numbers than {kind} takes ({', '.join(taken) or 'none'})"
        )
        raise config_error(message, "partition")
    table = dict(zip(taken, positions)) | table
    options = nest_errors("partition", lambda: parse_options(f"the partition {kind}", taken, table))
    return partial(PARTITIONS[kind], **options.arguments), {"kind": kind, **options.toml_values}
