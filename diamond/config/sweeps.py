"""Sweeps: lists in an algorithm's table, expanded into all combinations of their values."""

from collections.abc import Mapping
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

from .components import Component, read_algorithm
from .validation_errors import collect_errors, config_errors

KeyPath = tuple[str, ...]  # keys that lead to an option
NAMES = ("name", "label")


def read_algorithms(value: Any, base: Path = Path()) -> list[Component]:
    """Read the algorithms that a name or table stands for; labels state how they differ."""
    if not isinstance(value, dict):
        return [read_algorithm(value, base)]
    return collect_errors(
        *(partial(read_algorithm, setting, base) for setting in _label_settings(value))
    )


def _label_settings(table: dict[str, Any]) -> list[dict[str, Any]]:
    settings = expand_lists(table)
    if len(settings) == 1:
        return settings
    name = table.get("label", table.get("name"))
    return [
        setting | {"label": f"{name}, {format_options(varied_options(setting, table))}"}
        for setting in settings
    ]


def expand_lists(table: dict[str, Any]) -> list[dict[str, Any]]:
    """Expand a table into tables with one value of each list, in every combination."""
    values_by_path = find_lists(table)
    if empty := [path for path, values in values_by_path.items() if not values]:
        raise config_errors(
            (path, "is an empty list; give one value or more", []) for path in empty
        )
    return [
        _replace_values(table, dict(zip(values_by_path, values)))
        for values in product(*values_by_path.values())
    ]


def find_lists(table: Mapping[str, Any], prefix: KeyPath = ()) -> dict[KeyPath, list[Any]]:
    """Return the lists in a table and in its nested tables, by path."""
    values_by_path: dict[KeyPath, list[Any]] = {}
    for key, value in table.items():
        if isinstance(value, list) and (prefix or key not in NAMES):
            values_by_path[(*prefix, key)] = value
        elif isinstance(value, dict):
            values_by_path |= find_lists(value, (*prefix, key))
    return values_by_path


def varied_options(setting: Mapping[str, Any], table: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of `setting` where `table` has lists, by the last key of each path."""
    values = {}
    for path in find_lists(table):
        value: Any = setting
        for key in path:
            value = value[key]
        values[path[-1]] = value
    return values


def format_options(options: Mapping[str, Any]) -> str:
    """Format options as in "alpha=0.1, beta=0.3"."""
    return ", ".join(f"{key}={value}" for key, value in options.items())


def _replace_values(table: dict[str, Any], values: Mapping[KeyPath, Any]) -> dict[str, Any]:
    """Return the table with `values` at their paths; its other entries are unchanged."""
    result = dict(table)
    for (key, *rest), value in values.items():
        result[key] = _replace_values(result[key], {tuple(rest): value}) if rest else value
    return result
