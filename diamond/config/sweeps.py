"""Sweeps: lists in an algorithm's table, expanded into all combinations of their values."""

from collections.abc import Mapping
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

from .components import Part, algorithm
from .validation_errors import gather, several

Place = tuple[str, ...]  # keys that lead to an option
NAMES = ("name", "label")


def swept(value: Any, base: Path = Path()) -> list[Part]:
    """Read the algorithms that a name or table stands for; labels state how they differ."""
    if not isinstance(value, dict):
        return [algorithm(value, base)]
    return gather(*(partial(algorithm, one, base) for one in _labelled(value)))


def _labelled(table: dict[str, Any]) -> list[dict[str, Any]]:
    found = settings(table)
    if len(found) == 1:
        return found
    first = table.get("label", table.get("name"))
    return [one | {"label": f"{first}, {describe(options(one, table))}"} for one in found]


def settings(table: dict[str, Any]) -> list[dict[str, Any]]:
    """Expand a table into tables with one value of each list, in every combination."""
    found = lists(table)
    if empty := [place for place, values in found.items() if not values]:
        raise several((place, "is an empty list; give one value or more", []) for place in empty)
    return [_with(table, dict(zip(found, values))) for values in product(*found.values())]


def lists(table: Mapping[str, Any], at: Place = ()) -> dict[Place, list[Any]]:
    """Return the lists in a table and in its nested tables, by place."""
    found: dict[Place, list[Any]] = {}
    for key, value in table.items():
        if isinstance(value, list) and (at or key not in NAMES):
            found[(*at, key)] = value
        elif isinstance(value, dict):
            found |= lists(value, (*at, key))
    return found


def options(one: Mapping[str, Any], table: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of `one` where `table` has lists, by the last key of each place."""
    chosen = {}
    for place in lists(table):
        value: Any = one
        for key in place:
            value = value[key]
        chosen[place[-1]] = value
    return chosen


def describe(chosen: Mapping[str, Any]) -> str:
    """Format options as in "alpha=0.1, beta=0.3"."""
    return ", ".join(f"{key}={value}" for key, value in chosen.items())


def _with(table: dict[str, Any], values: Mapping[Place, Any]) -> dict[str, Any]:
    """Return the table with `values` at their places; its other entries are unchanged."""
    made = dict(table)
    for (key, *rest), value in values.items():
        made[key] = _with(made[key], {tuple(rest): value}) if rest else value
    return made
