"""JSON form of the numbers that a run estimated, for the notes of its checkpoints."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..core.cost_counter import Cost
from ..schedules.deferred import ResolvedValue


def to_json(memory: Mapping[str, ResolvedValue]) -> dict[str, Any]:
    """Convert the numbers by name to JSON; a Python number stays one."""
    return {name: _told(found) for name, found in memory.items()}


def from_json(notes: Mapping[str, Any]) -> dict[str, ResolvedValue]:
    """Restore the numbers that `to_json` wrote."""
    return {name: _found(entry) for name, entry in notes.items()}


def _told(found: ResolvedValue) -> dict[str, Any]:
    kind = None if isinstance(found.value, int | float) else str(np.asarray(found.value).dtype)
    value = found.value if kind is None else np.asarray(found.value).tolist()
    cost = [np.asarray(spent).tolist() for spent in found.cost]
    return found._asdict() | {"value": value, "dtype": kind, "cost": cost}


def _found(told: Mapping[str, Any]) -> ResolvedValue:
    kind, value = told["dtype"], told["value"]
    value = value if kind is None else np.asarray(value, kind)
    rest = {name: told[name] for name in ResolvedValue._fields}
    cost = (spent if isinstance(spent, int) else np.asarray(spent) for spent in told["cost"])
    return ResolvedValue(**rest | {"value": value, "cost": Cost(*cost)})
