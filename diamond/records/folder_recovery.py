"""Recovery of a run from the files of its folder, damaged or not.

`plan_recovery` only reads. `repair_folder` sets damaged files aside as `NAME.damaged-N` and cuts
the lines after the chosen checkpoint. Nothing is deleted.
"""

import json
import os
from pathlib import Path
from typing import Any, NamedTuple

from . import checkpoint_file
from .checkpoint_file import Checkpoint, DamagedCheckpoint
from .digest_chain import chain_digest
from .metrics_file import MetricsFile

DAMAGED_SUFFIX = ".damaged-"
REQUIRED_KEYS = ("status", "problem", "resolved", "algorithm", "network", "seed")  # for readers


class UnrecoverableRun(ValueError):
    """Error: no checkpoint of a run can be read, so that it can only be restarted."""


class RecoveryPlan(NamedTuple):
    """Recoverable content of a folder."""

    checkpoint: Checkpoint | None  # checkpoint to resume from
    lines: list[dict[str, Any]]  # readable evaluations up to that checkpoint
    chain: str  # digest of all evaluations up to that checkpoint, unreadable ones included
    damaged_files: list[Path]  # files to set aside
    messages: list[str]  # descriptions of the damage and of the recovery
    had_checkpoint: bool  # whether a checkpoint was ever written


def plan_recovery(path: Path) -> RecoveryPlan:
    """Find the checkpoint to resume from in the folder `path`.

    This is the newest complete checkpoint whose evaluations can all be read, else the newest
    complete one: later rounds do not depend on evaluations.
    """
    states, metrics = path / "checkpoint", MetricsFile(path / "metrics.jsonl")
    lines, intact = metrics.read_lines()
    damaged_files, messages = (
        ([], []) if intact else ([metrics.path], [f"{metrics.path} has damaged lines"])
    )
    complete: list[Checkpoint] = []
    errors: list[str] = []
    for round in reversed(checkpoint_file.saved_rounds(states)):
        try:
            complete.append(checkpoint_file.load(states, round))
        except DamagedCheckpoint as error:
            errors.append(str(error))
            damaged_files += [
                file for file in checkpoint_file.checkpoint_files(states, round) if file.exists()
            ]
    content, reason = read_manifest(path / "manifest.json")
    if reason:
        damaged_files.append(path / "manifest.json")
        messages.append(f"{path / 'manifest.json'} is damaged ({reason})")
    was_recorded = content.get("checkpointed") or (
        lines and not content
    )  # a manifest precedes lines
    had_checkpoint = bool(
        complete or errors or was_recorded or any(states.glob(f"*{DAMAGED_SUFFIX}*"))
    )
    messages += [f"{error}; an earlier one is used" if complete else error for error in errors]
    return _choose_checkpoint(
        metrics,
        complete,
        lines,
        RecoveryPlan(None, [], "", damaged_files, messages, had_checkpoint),
    )


def _choose_checkpoint(
    metrics: MetricsFile,
    complete: list[Checkpoint],
    lines: list[dict[str, Any]],
    plan: RecoveryPlan,
) -> RecoveryPlan:
    """Return `plan` with the checkpoint to resume from, and its lines."""
    if not complete:
        return plan
    for candidate in complete:
        covered = [line for line in lines if line["round"] <= candidate.round]
        chain = chain_digest(covered)
        if chain == candidate.notes.get(
            "chain", chain if last_round(covered) == candidate.round else None
        ):
            return plan._replace(checkpoint=candidate, lines=covered, chain=chain)
        problem = (
            f"lacks round {candidate.round}"
            if last_round(covered) != candidate.round
            else "is not what was written"
        )
        plan.messages.append(f"{metrics.path} {problem}")
    newest = complete[0]
    covered = [line for line in lines if line["round"] <= newest.round]
    chain = newest.notes.get("chain") or chain_digest(covered)
    plan.messages.append(f"evaluations up to round {newest.round} are lost; the run itself is not")
    return plan._replace(checkpoint=newest, lines=covered, chain=chain)


def last_round(lines: list[dict[str, Any]]) -> int:
    """Return the round of the last evaluation; -1 if there is none."""
    return int(lines[-1]["round"]) if lines else -1


def read_manifest(path: Path) -> tuple[dict[str, Any], str]:
    """Read the manifest; return it with the reason if it cannot be read."""
    try:
        content = json.loads(path.read_bytes())
    except FileNotFoundError:
        return {}, ""
    except (OSError, ValueError, RecursionError) as cause:
        return {}, str(cause)
    missing = [key for key in REQUIRED_KEYS if not isinstance(content, dict) or key not in content]
    return (content, "") if not missing else ({}, f"it has no {missing[0]}")


def repair_folder(path: Path, plan: RecoveryPlan) -> None:
    """Set damaged files aside, and keep only the lines in `plan`.

    If lines are dropped because of damage, a copy of the file is set aside as well.
    """
    metrics = MetricsFile(path / "metrics.jsonl")
    for file in plan.damaged_files:
        if file != metrics.path:
            os.rename(file, unused_path(file))
    if metrics.path.exists():
        is_longer = last_round(metrics.lines()) > last_round(plan.lines)
        if (plan.messages and is_longer) or metrics.path in plan.damaged_files:
            checkpoint_file.replace_file(unused_path(metrics.path), metrics.path.read_bytes())
        metrics.keep_only(plan.lines)


def set_files_aside(path: Path) -> list[Path]:
    """Rename all files that a run has written; return the new paths."""
    states = path / "checkpoint"
    checkpoints = [
        file
        for r in checkpoint_file.saved_rounds(states)
        for file in checkpoint_file.checkpoint_files(states, r)
    ]
    renamed = []
    for file in [*checkpoints, path / "metrics.jsonl", path / "manifest.json"]:
        if file.exists():
            renamed.append(unused_path(file))
            os.rename(file, renamed[-1])
    return renamed


def set_aside(path: Path) -> Path:
    """Rename a damaged file to an unused name, and return that name."""
    aside = unused_path(path)
    path.rename(aside)
    return aside


def unused_path(path: Path) -> Path:
    """Return the first of `path`.damaged-1, -2, ... that does not exist."""
    number = 1
    while (candidate := path.with_name(f"{path.name}{DAMAGED_SUFFIX}{number}")).exists():
        number += 1
    return candidate
