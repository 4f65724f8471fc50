"""A data set dealt out to the agents and split into their parts."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Literal, NamedTuple

import numpy as np

from .. import data
from ..data import Dataset
from ..data.standardize import federated, told
from .components import spec
from .datasets import load
from .options import parameters, read
from .validation_errors import did_you_mean, gather, several, within, wrong

PARTITIONS: dict[str, Callable[..., list[np.ndarray]]] = {
    "by_label": data.partition.by_label,
    "dirichlet": data.partition.dirichlet,
    "iid": data.partition.iid,
    "unequal": data.partition.unequal,
}
SHARES = (0.4, 0.4, 0.2)  # of training, validation and test rows
IID, AGENTS = "iid", 9  # where nothing else is said
ALREADY = ("labels", "labels_or_n", "agents", "seed")  # what a partition is handed anyway


class Dealt(NamedTuple):
    """Every agent's rows of each part."""

    train: list[dict[str, np.ndarray]]
    valid: list[dict[str, np.ndarray]]
    test: list[dict[str, np.ndarray]]
    classes: int
    names: tuple[str, ...]  # the features', if they have any


def deal(
    dataset: str | list[str] | dict[str, str],
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
    real: bool = False,
) -> Dealt:
    """Training rows of `dataset` (all, or `rows` of them) over the agents.

    Sites are agents: several files are a site each, a csv file may have a column `site`, an npz
    file an array `sites`. Otherwise rows go to `agents` (9) as `partition` ("iid") says. `shares`
    of each agent's rows are for training, validation and test. `label` names the column of labels
    of a csv file and `features` those to use; `real` labels are numbers to regress on. `scale`
    "standard" subtracts from every feature the mean and divides by the deviation that it has over
    the training rows of all agents, who tell sums alone; a table tells them, [mean, deviation] of
    each feature by its name.
    """
    found = load(dataset, folder, label, site, real, features)
    table, labels = found.train
    sites = found.sites
    if rows is not None:
        chosen = np.random.default_rng(seed).permutation(len(labels))[:rows]
        table, labels = table[chosen], labels[chosen]
        sites = None if sites is None else sites[chosen]
    if sites is not None and partition is None:
        parts = [np.flatnonzero(sites == place) for place in found.places]
    else:
        parts = dealer(partition or IID)(labels, agents or AGENTS, seed=seed)
    split = data.partition.split(parts, shares, seed)
    if scale == "standard":
        table = federated([table[i] for i in split[0]])(table)
    elif scale != "none":
        table = told(scale, found.names)(table)
    train, valid, test = ([{"a": table[i], "b": labels[i]} for i in part] for part in split)
    return Dealt(train, valid, test, len(found.classes), found.names)


def settled(given: dict[str, Any], found: Dataset | None) -> dict[str, Any]:
    """Who the agents are, as a file says it in full; raises with every mistake.

    `found` is the data set where its files are at hand, `given` what was asked for.
    """
    several = isinstance(given.get("dataset"), list | dict)
    partition, agents = given.get("partition"), given.get("agents")
    wanted = several or "site" in given

    def alone() -> None:
        if several and "site" in given:
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
    """That function, and the table that says it in full; mistakes are those of `partition`.

    In short: "dirichlet:concentration=0.3", "by_label:2".
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
