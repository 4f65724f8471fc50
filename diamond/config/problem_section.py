"""Problems of an experiment: those of the package, or the user's own function."""

import inspect
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from .. import gallery
from ..core.suggestions import did_you_mean
from ..data import DataError, Dataset
from ..data.missing_values import check_names
from ..data.standardize import told
from ..problem import Problem
from .components import Part, table
from .dataset_section import KNOWN, files, found_at, several
from .digits import digits
from .options import parameters, read
from .partition_section import PARTS, columns_of, partition_options, partition_rows
from .site_agents import check_partition, check_same_sites, resolve_agents
from .user_functions import UserFunction, digests, user_function
from .validation_errors import gather, wrong

FILES = str | list | dict
IN_PYTHON = ("representation",)  # takes functions, which a file cannot express
EXAMPLE = '{kind = "my_problem.py:make"}'


def names() -> list[str]:
    """List the problems of the package."""
    found = [name for name in gallery.__all__ if inspect.isfunction(getattr(gallery, name))]
    return sorted({*found, "digits"} - {*IN_PYTHON})


def problem(value: Any, base: Path, first: int = 0) -> Part:
    """Read a problem from its kind, or from a table with `kind` and options; paths start at `base`.

    `first` is the number of the first agent, which differs from 0 at a single site.
    """
    given = table(value, "kind", EXAMPLE)
    kind = given.pop("kind")
    if found := user_function(kind, base, "kind"):
        return _own(found, given)
    canonical = kind.lower().replace("-", "_")
    if canonical not in names():
        said = f"no problem {kind!r}; {did_you_mean(kind, names())}"
        raise wrong(f"{said}, or your own as {EXAMPLE}", "kind")
    make: Callable[..., Any] = digits
    if canonical != "digits":
        make = getattr(gallery, canonical)
    if "train" in parameters(make):
        return _on_rows(canonical, make, given, base, first)
    options = read(canonical, parameters(make), given)
    return Part(canonical, options.spelled, lambda: _checked(make(**options.objects), canonical))


def _on_rows(
    name: str, make: Callable[..., Any], given: dict[str, Any], base: Path, first: int
) -> Part:
    """Read a problem that takes rows, on a data set partitioned over the agents."""
    dealt, rest = (
        parameters(partition_rows, without=("real", "first")),
        parameters(make, without=PARTS),
    )
    real = "classes" not in rest  # labels are numbers to regress on
    files_of = {k: given[k] for k in ("dataset", *PARTS) if isinstance(given.get(k), FILES)}
    readers: list[Callable[[], Any]] = [
        lambda: read(name, {**dealt, **rest}, given),
        lambda: check_partition(given),
    ]
    if isinstance(given.get("partition"), str | dict):
        readers.append(lambda: partition_options(given["partition"]))
    readers += [partial(found_at, place, base, key) for key, place in files_of.items()]
    options = gather(*readers)[0]
    of = lambda taken: {k: v for k, v in options.objects.items() if k in taken}
    places = {key: found_at(value, base, key) for key, value in files_of.items()}
    rows, inner = of(dealt) | places | {"real": real, "first": first}, of(rest)

    def build() -> Problem:
        partition = partition_rows(**rows)
        train, valid, test, classes, names = partition[:5]
        known: dict[str, Any] = {"classes": classes} if "classes" in rest else {}
        known |= {"names": names} if "names" in rest and names else {}
        sites = partition.sites or None
        known |= {"agent_names": sites} if "agent_names" in rest and sites else {}
        made = _checked(make(train, valid, test, **known | inner), name)
        return made.annotate(sites, partition.notes)

    spelled = {k: v for k, v in options.spelled.items() if k not in ("agents", "partition")}
    if "dataset" not in given:
        spelled.pop("shares", None)
    asked = given | places
    resolve_agents(asked, None)  # mistakes that do not depend on the files
    spelled |= places | resolve_agents(asked, _at_hand(rows, places))
    if "classes" not in given:
        spelled.pop("classes", None)  # the data set determines the number
    used = [Path(path) for place in places.values() for path in files(place)]
    return Part(name, spelled, build, sources=digests(*used))


def _at_hand(rows: dict[str, Any], places: dict[str, Any]) -> Dataset | None:
    """Load the data set, or its training part if parts have separate files, if it is the user's."""
    first = next(iter(places))
    if isinstance(places[first], str) and places[first] in KNOWN:
        return None
    try:
        found = several(places, rows.get("folder"), columns_of(rows))
        check_names(rows.get("missing_values", "refuse"), found[first].names)
        if isinstance(rows.get("scale"), dict):
            told(rows["scale"], found[first].names)
    except (DataError, OSError) as cause:
        raise wrong(str(cause), first) from None
    if "train" in places:
        check_same_sites(found, any(isinstance(place, dict) for place in places.values()))
    return found[first]


def _own(found: UserFunction, given: dict[str, Any]) -> Part:
    """Read a problem made by a function of the user's own file."""
    options = read(found.name, parameters(found.make), given)
    build = lambda: _checked(found.called(**options.objects), found.name)
    return Part(found.spelled, options.spelled, build, sources=found.sources)


def _checked(made: Any, name: str) -> Problem:
    found = getattr(made, "problem", made)
    if not isinstance(found, Problem):
        raise ValueError(f"{name} returned {type(made).__name__}; it must return a diamond.Problem")
    return found
