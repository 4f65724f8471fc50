"""Agents of an experiment: sites with files, or agents to which rows are assigned."""

from collections.abc import Mapping
from typing import Any

from ..data import Dataset
from .partition_section import AGENTS, IID, PARTS, SHARES, partition_options
from .validation_errors import gather, several, wrong


def check_same_sites(found: Mapping[str, Dataset], named: bool) -> None:
    """Refuse files for training, validation and test that are not of the same sites.

    If `named` is true, sites have names, the same in all parts; else files are matched by order.
    """
    train = found["train"]
    for part, one in found.items():
        if named and (odd := {*train.places} ^ {*one.places}):
            has, lacks = ("train", part) if min(odd) in train.places else (part, "train")
            raise wrong(f"has no file of site {min(odd)}, which {has} has; add it", lacks)
        if len(one.places) != len(train.places):
            said = f"is of {len(one.places)} sites, train of {len(train.places)}; give as many"
            raise wrong(said, part)


def resolve_agents(given: dict[str, Any], found: Dataset | None) -> dict[str, Any]:
    """Determine the agents, as a file states them in full; raises with every mistake.

    `found` is the data set, if its files are available; `given` are the requested options.
    """
    many = isinstance(given.get("dataset", given.get("train")), list | dict)
    partition, agents = given.get("partition"), given.get("agents")
    wanted = many or "site" in given

    def alone() -> None:
        if many and "site" in given:
            raise wrong("each file is a site already; leave it out", "site")

    def one_rule() -> None:
        if wanted and partition is not None:
            raise wrong("the sites say who has which rows; leave it out", "partition")

    def as_many() -> None:
        count = len(found.places) if found else 0
        if found and agents is not None and agents != count:
            said = f"is {agents}, but there are {count} sites ({', '.join(found.places[:6])}"
            raise wrong(f"{said}{', ...' * (count > 6)}); leave it out", "agents")

    sited = wanted or (found is not None and bool(found.places) and partition is None)
    gather(alone, one_rule, *([as_many] if sited else []))
    if sited:
        return {"agents": len(found.places)} if found else {}
    table = partition_options(IID if partition is None else partition)[1]
    return {"agents": AGENTS if agents is None else agents, "partition": table}


def check_partition(given: Mapping[str, Any]) -> None:
    """Refuse partition options that no data set could satisfy."""
    found: list[tuple[tuple[str | int, ...], str, Any]] = []
    for name, least in (("agents", 1), ("rows", 1), ("seed", 0), ("hashed", 1)):
        if isinstance(value := given.get(name), int) and value < least:
            found.append(((name,), f"must be a whole number, {least} or more, not {value}", value))
    shares = given.get("shares", SHARES)
    if _numbers(shares) and (len(shares) != 3 or min(shares) <= 0 or abs(sum(shares) - 1) > 1e-9):
        said = f"must be three numbers above 0 that add up to 1, as in {list(SHARES)}: the shares "
        found.append((("shares",), f"{said}of training, validation and test rows", shares))
    apart = [part for part in PARTS if part in given]
    if "dataset" in given:
        said = "dataset has the rows of all parts already; leave it out"
        found += [((part,), said, given[part]) for part in apart]
    elif apart:
        said = "is missing: train and valid have files of their own, or dataset has all rows"
        found += [((part,), said, None) for part in PARTS[:2] if part not in given]
        said = "is for one dataset; leave it out, train and valid have files of their own"
        found += [((key,), said, given[key]) for key in ("shares", "rows") if key in given]
    else:
        found.append((("dataset",), "is missing: name a data set or files", None))
    if found:
        raise several(found)


def _numbers(value: Any) -> bool:
    return isinstance(value, list | tuple) and all(isinstance(v, int | float) for v in value)
