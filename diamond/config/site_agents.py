"""Agents of an experiment: sites with files, or agents to which rows are assigned."""

from collections.abc import Mapping
from typing import Any

from ..data import Dataset
from .partition_section import AGENTS, IID, PARTS, SHARES, partition_options
from .validation_errors import config_error, config_errors


def check_same_sites(datasets: Mapping[str, Dataset], named: bool) -> None:
    """Refuse files for training, validation and test that are not of the same sites.

    If `named` is true, sites have names, the same in all parts; else files are matched by order.
    """
    train = datasets["train"]
    for part, dataset in datasets.items():
        if named and (unmatched := {*train.places} ^ {*dataset.places}):
            has, lacks = ("train", part) if min(unmatched) in train.places else (part, "train")
            raise config_error(
                f"has no file of site {min(unmatched)}, which {has} has; add it", lacks
            )
        if len(dataset.places) != len(train.places):
            message = (
                f"is of {len(dataset.places)} sites, train of {len(train.places)}; give the same "
                f"number"
            )
            raise config_error(message, part)


def resolve_agents(options: dict[str, Any], dataset: Dataset | None) -> dict[str, Any]:
    """Determine the agents, as a file states them in full; raises with every mistake.

    `dataset` is given if its files are available; `options` are the requested options.
    """
    has_several_files = isinstance(options.get("dataset", options.get("train")), list | dict)
    partition, agents = options.get("partition"), options.get("agents")
    names_sites = has_several_files or "site" in options

    sites_are_agents = names_sites or (
        dataset is not None and bool(dataset.places) and partition is None
    )
    mistakes: list[tuple[tuple[str | int, ...], str, Any]] = []
    if has_several_files and "site" in options:
        mistakes.append((("site",), "each file is a site already; leave it out", None))
    if names_sites and partition is not None:
        message = "the sites determine who has which rows; leave it out"
        mistakes.append((("partition",), message, None))
    count = len(dataset.places) if dataset else 0
    if sites_are_agents and dataset and agents is not None and agents != count:
        message = f"is {agents}, but there are {count} sites ({', '.join(dataset.places[:6])}"
        message += f"{', ...' * (count > 6)}); leave it out"
        mistakes.append((("agents",), message, None))
    if mistakes:
        raise config_errors(mistakes)
    if sites_are_agents:
        return {"agents": len(dataset.places)} if dataset else {}
    table = partition_options(IID if partition is None else partition)[1]
    return {"agents": AGENTS if agents is None else agents, "partition": table}


def check_partition(options: Mapping[str, Any]) -> None:
    """Refuse partition options that no data set could satisfy."""
    mistakes: list[tuple[tuple[str | int, ...], str, Any]] = []
    for name, least in (("agents", 1), ("rows", 1), ("seed", 0), ("hashed", 1)):
        if isinstance(value := options.get(name), int) and value < least:
            mistakes.append(
                ((name,), f"must be a whole number, {least} or more, not {value}", value)
            )
    shares = options.get("shares", SHARES)
    if _are_numbers(shares) and (
        len(shares) != 3 or min(shares) <= 0 or abs(sum(shares) - 1) > 1e-9
    ):
        message = (
            f"must be three numbers above 0 that add up to 1, as in {list(SHARES)}: the shares "
        )
        mistakes.append((("shares",), f"{message}of training, validation and test rows", shares))
    parts_given = [part for part in PARTS if part in options]
    if "dataset" in options:
        message = "dataset has the rows of all parts already; leave it out"
        mistakes += [((part,), message, options[part]) for part in parts_given]
    elif parts_given:
        message = "is missing: train and valid have files of their own, or dataset has all rows"
        mistakes += [((part,), message, None) for part in PARTS[:2] if part not in options]
        message = "is for one dataset; leave it out, train and valid have files of their own"
        mistakes += [
            ((key,), message, options[key]) for key in ("shares", "rows") if key in options
        ]
    else:
        mistakes.append((("dataset",), "is missing: name a data set or files", None))
    if mistakes:
        raise config_errors(mistakes)


def _are_numbers(value: Any) -> bool:
    return isinstance(value, list | tuple) and all(isinstance(v, int | float) for v in value)
