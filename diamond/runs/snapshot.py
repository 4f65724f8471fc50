"""Where a run stands, at the end of a round."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..numbers.open_numbers import Found
from . import resolved_numbers


class Snapshot(NamedTuple):
    """Where a run stands: what the rounds to come depend on, and what was measured until then."""

    arrays: dict[str, Any]  # state and counters of all agents, the round among them, by name
    found: dict[str, Found]  # the numbers that the run had to find, by name
    seconds: float  # of the rounds made
    entries: list[dict[str, float]]  # the history, one entry an evaluation
    own: list[dict[str, np.ndarray]]  # what each agent has of its own, one entry an evaluation


def notes(saved: Snapshot, wall: float) -> dict[str, Any]:
    """The part of a snapshot that a checkpoint holds as JSON."""
    found = resolved_numbers.to_json(saved.found)
    return {"seconds": saved.seconds, "wall": wall, "found": found}


def restored(
    arrays: Mapping[str, Any], notes: Mapping[str, Any], lines: Sequence[Mapping[str, Any]]
) -> Snapshot:
    """The snapshot of a checkpoint with these arrays and notes, after these lines of metrics."""
    entries = [{k: v for k, v in line.items() if k != "agents"} for line in lines]
    own = [{k: np.array(v) for k, v in line["agents"].items()} for line in lines]
    found = resolved_numbers.from_json(notes["found"])
    return Snapshot(dict(arrays), found, notes["seconds"], entries, own)
