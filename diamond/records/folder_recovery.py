"""Recovery of a run from the files of its folder, damaged or not.

`look` only reads. `repair` sets damaged files aside as `NAME.damaged-N` and cuts the lines after
the chosen checkpoint. Nothing is deleted.
"""

import json
import os
from pathlib import Path
from typing import Any, NamedTuple

from . import checkpoint
from .checkpoint import Checkpoint, Damaged
from .digest_chain import follow
from .metrics_file import Metrics

MARK = ".damaged-"
NEEDED = ("status", "problem", "resolved", "algorithm", "network", "seed")  # for readers


class Lost(ValueError):
    """Error: no checkpoint of a run can be read, so that it can only be restarted."""


class Found(NamedTuple):
    """Recoverable content of a folder."""

    chosen: Checkpoint | None  # checkpoint to resume from
    lines: list[dict[str, Any]]  # readable evaluations up to that checkpoint
    chain: str  # digest of all evaluations up to that checkpoint, unreadable ones included
    damaged: list[Path]  # files to set aside
    said: list[str]  # descriptions of the damage and of the recovery
    begun: bool  # whether a checkpoint was ever written


def look(path: Path) -> Found:
    """Find the checkpoint to resume from in the folder `path`.

    This is the newest complete checkpoint whose evaluations can all be read, else the newest
    complete one: later rounds do not depend on evaluations.
    """
    states, metrics = path / "checkpoint", Metrics(path / "metrics.jsonl")
    lines, whole = metrics.readable()
    damaged, said = ([], []) if whole else ([metrics.path], [f"{metrics.path} has damaged lines"])
    sound: list[Checkpoint] = []
    torn: list[str] = []
    for round in reversed(checkpoint.rounds(states)):
        try:
            sound.append(checkpoint.load(states, round))
        except Damaged as damage:
            torn.append(str(damage))
            damaged += [file for file in checkpoint.files(states, round) if file.exists()]
    known, reason = manifest(path / "manifest.json")
    if reason:
        damaged.append(path / "manifest.json")
        said.append(f"{path / 'manifest.json'} is damaged ({reason})")
    told = known.get("checkpointed") or (lines and not known)  # a manifest precedes lines
    begun = bool(sound or torn or told or any(states.glob(f"*{MARK}*")))
    said += [f"{damage}; an earlier one is used" if sound else damage for damage in torn]
    return _chosen(metrics, sound, lines, Found(None, [], "", damaged, said, begun))


def _chosen(
    metrics: Metrics, sound: list[Checkpoint], lines: list[dict[str, Any]], found: Found
) -> Found:
    """Return `found` with the checkpoint to resume from, and its lines."""
    if not sound:
        return found
    for one in sound:
        here = [line for line in lines if line["round"] <= one.round]
        chain = follow(here)
        if chain == one.notes.get("chain", chain if last(here) == one.round else None):
            return found._replace(chosen=one, lines=here, chain=chain)
        lacks = f"lacks round {one.round}" if last(here) != one.round else "is not what was written"
        found.said.append(f"{metrics.path} {lacks}")
    newest = sound[0]
    here = [line for line in lines if line["round"] <= newest.round]
    chain = newest.notes.get("chain") or follow(here)
    found.said.append(f"evaluations up to round {newest.round} are lost; the run itself is not")
    return found._replace(chosen=newest, lines=here, chain=chain)


def last(lines: list[dict[str, Any]]) -> int:
    """Return the round of the last evaluation; -1 if there is none."""
    return int(lines[-1]["round"]) if lines else -1


def manifest(path: Path) -> tuple[dict[str, Any], str]:
    """Read the manifest; return it with the reason if it cannot be read."""
    try:
        known = json.loads(path.read_bytes())
    except FileNotFoundError:
        return {}, ""
    except (OSError, ValueError, RecursionError) as cause:
        return {}, str(cause)
    missing = [key for key in NEEDED if not isinstance(known, dict) or key not in known]
    return (known, "") if not missing else ({}, f"it has no {missing[0]}")


def repair(path: Path, found: Found) -> None:
    """Set damaged files aside, and keep only the lines in `found`.

    If lines are dropped because of damage, a copy of the file is set aside as well.
    """
    metrics = Metrics(path / "metrics.jsonl")
    for file in found.damaged:
        if file != metrics.path:
            os.rename(file, unused(file))
    if metrics.path.exists():
        cut = last(metrics.lines()) > last(found.lines)
        if (found.said and cut) or metrics.path in found.damaged:
            checkpoint.replace(unused(metrics.path), metrics.path.read_bytes())
        metrics.keep(found.lines)


def set_aside(path: Path) -> list[Path]:
    """Rename all files that a run has written; return the new paths."""
    states = path / "checkpoint"
    old = [file for r in checkpoint.rounds(states) for file in checkpoint.files(states, r)]
    moved = []
    for file in [*old, path / "metrics.jsonl", path / "manifest.json"]:
        if file.exists():
            moved.append(unused(file))
            os.rename(file, moved[-1])
    return moved


def unused(path: Path) -> Path:
    """Return the first of `path`.damaged-1, -2, ... that does not exist."""
    number = 1
    while (aside := path.with_name(f"{path.name}{MARK}{number}")).exists():
        number += 1
    return aside
