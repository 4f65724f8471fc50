"""Snapshot of a run at the end of a round."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..schedules.deferred import ResolvedValue
from . import resolved_values


class Snapshot(NamedTuple):
    """State that later rounds depend on, and the measurements so far."""

    arrays: dict[str, Any]  # state and counters of all agents, including the round, by name
    resolved: dict[str, ResolvedValue]  # numbers that the run estimated, by name
    seconds: float  # of the rounds so far
    entries: list[dict[str, float]]  # history, one entry per evaluation
    per_agent: list[dict[str, np.ndarray]]  # values of each agent, one entry per evaluation


def snapshot_notes(snapshot: Snapshot, wall_seconds: float) -> dict[str, Any]:
    """Return the part of a snapshot that a checkpoint stores as JSON."""
    resolved = resolved_values.to_json(snapshot.resolved)
    return {"seconds": snapshot.seconds, "wall": wall_seconds, "found": resolved}


def restore_snapshot(
    arrays: Mapping[str, Any], notes: Mapping[str, Any], lines: Sequence[Mapping[str, Any]]
) -> Snapshot:
    """Restore the snapshot from a checkpoint's arrays and notes and its metrics lines."""
    entries = [{k: v for k, v in line.items() if k != "agents"} for line in lines]
    per_agent = [{k: np.array(v) for k, v in line["agents"].items()} for line in lines]
    resolved = resolved_values.from_json(notes["found"])
    return Snapshot(dict(arrays), resolved, notes["seconds"], entries, per_agent)
