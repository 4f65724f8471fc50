"""JSON form of the numbers that a run estimated, for the notes of its checkpoints."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..core.cost_counter import Cost
from ..schedules.deferred import ResolvedValue


def to_json(resolved: Mapping[str, ResolvedValue]) -> dict[str, Any]:
    """Convert the numbers by name to JSON; a Python number stays one."""
    return {name: _value_to_json(value) for name, value in resolved.items()}


def from_json(notes: Mapping[str, Any]) -> dict[str, ResolvedValue]:
    """Restore the numbers that `to_json` wrote."""
    return {name: _value_from_json(entry) for name, entry in notes.items()}


def _value_to_json(resolved: ResolvedValue) -> dict[str, Any]:
    dtype = (
        None if isinstance(resolved.value, int | float) else str(np.asarray(resolved.value).dtype)
    )
    value = resolved.value if dtype is None else np.asarray(resolved.value).tolist()
    cost = [np.asarray(spent).tolist() for spent in resolved.cost]
    return resolved._asdict() | {"value": value, "dtype": dtype, "cost": cost}


def _value_from_json(entry: Mapping[str, Any]) -> ResolvedValue:
    dtype, value = entry["dtype"], entry["value"]
    value = value if dtype is None else np.asarray(value, dtype)
    fields = {name: entry[name] for name in ResolvedValue._fields}
    cost = (spent if isinstance(spent, int) else np.asarray(spent) for spent in entry["cost"])
    return ResolvedValue(**fields | {"value": value, "cost": Cost(*cost)})
