"""Crash-safe, resumable writer of a run folder."""

import json
import time
from pathlib import Path
from typing import Any

from ..data.preparation import FILE as PREPARATION
from ..data.preparation import Preparation
from . import checkpoint_file
from .checkpoint_content import Snapshot, restore_snapshot, snapshot_notes
from .digest_chain import chain_digest
from .folder_lock import acquire_lock
from .folder_recovery import (
    RecoveryPlan,
    UnrecoverableRun,
    last_round,
    plan_recovery,
    read_manifest,
    repair_folder,
    set_files_aside,
)
from .metrics_file import AgentValues, MetricsFile, format_line, parse_line
from .strict_json import dumps
from .trajectory_digest import digest_from_chain

MIN_INTERVAL = 2.0  # minimum seconds between checkpoints
MAX_TIME_SHARE = 1 / 500  # maximum share of time spent on checkpoints


class Writer:
    """Writer of evaluations and periodic checkpoints.

    Lines of metrics.jsonl reach the disk before the checkpoint that follows them, so a checkpoint
    is never ahead of the lines. Lines after the checkpoint are dropped on resuming.
    """

    def __init__(self, path: Path, checkpoint_interval: float = MIN_INTERVAL):
        self.path, self.checkpoint_interval = Path(path), checkpoint_interval
        self.path.mkdir(parents=True, exist_ok=True)
        self.metrics = MetricsFile(self.path / "metrics.jsonl")
        self.checkpoints = self.path / "checkpoint"
        self._lock = acquire_lock(self.path / ".lock")
        self._start_time = time.monotonic()
        self._earlier_seconds = 0.0  # wall seconds of earlier sessions
        self._last_checkpoint = -1, self._start_time  # round and time of the last checkpoint
        self._checkpoint_seconds = 0.0  # seconds of writing that checkpoint
        self._checkpointed = False  # whether the manifest records a checkpoint
        self._last_line_round = -1  # round of the last line
        self._lost_line_round: int | None = None  # round of the checkpoint, if its line is lost
        self._chains = [(-1, "")]  # digests of all lines up to a round, of this session

    def __enter__(self) -> "Writer":
        return self

    def __exit__(self, *_: object) -> None:
        self._lock.close()

    @property
    def wall_seconds(self) -> float:
        """Return the seconds spent on this run, earlier sessions included."""
        return self._earlier_seconds + time.monotonic() - self._start_time

    def write_preparation(self, preparation: Preparation | None) -> None:
        """Write the preparation of the rows that the run begins or continues with."""
        path = self.path / PREPARATION
        if preparation is None:
            path.unlink(missing_ok=True)
        else:
            checkpoint_file.replace_file(path, preparation.to_json().encode(), durable=False)

    def begin(self, manifest: dict[str, Any], config: str, clear: bool = True) -> None:
        """Start the run; if `clear` is true, remove everything of an earlier attempt."""
        checkpoint_file.replace_file(self.path / "config.toml", config.encode(), durable=False)
        self.update_manifest(**manifest, config=checkpoint_file.content_digest(config.encode()))
        if not clear:
            return
        self.metrics.path.write_bytes(b"")
        for round in checkpoint_file.saved_rounds(self.checkpoints):
            checkpoint_file.discard(self.checkpoints, round)

    def update_manifest(self, **changes: Any) -> dict[str, Any]:
        """Update the manifest with `changes`, write and return it."""
        path = self.path / "manifest.json"
        content = json.loads(path.read_text()) if path.exists() else {}
        content |= changes
        if changes:
            checkpoint_file.replace_file(path, dumps(content, indent=1).encode())
        return content

    def append(self, entry: dict[str, float], per_agent: AgentValues) -> None:
        """Write an evaluation."""
        self.metrics.append(entry, per_agent)
        line = parse_line(format_line(entry, per_agent))
        self._chains.append((line["round"], chain_digest([line], self._chains[-1][1])))

    def final_digest(self, x: Any, y: Any) -> str:
        """Return the digest of the run that ends at x and y."""
        return digest_from_chain(self._chains[-1][1], x, y)

    def record_snapshot(self, saved: Snapshot, is_last: bool = False) -> None:
        """Write an evaluation, and a checkpoint if it is the last or one is due."""
        round = int(saved.entries[-1]["round"])
        if round == self._lost_line_round:  # measured again, since its line was lost
            self._lost_line_round = None
            self.metrics.append(saved.entries[-1], saved.per_agent[-1])
            return
        if round <= self._last_line_round:
            self._discard_from(round)
        self._last_line_round = round
        self.append(saved.entries[-1], saved.per_agent[-1])
        interval = (
            max(self.checkpoint_interval, self._checkpoint_seconds / MAX_TIME_SHARE)
            if self.checkpoint_interval
            else 0.0
        )
        if is_last or time.monotonic() - self._last_checkpoint[1] >= interval:
            self.save_checkpoint(saved)

    def _discard_from(self, round: int) -> None:
        """Discard everything written for `round` and later, after a rollback."""
        lines = self.metrics.truncate(round - 1)
        if self._chains[0][0] >= round:  # back beyond the start of this session
            self._chains = [(round - 1, chain_digest(lines))]
        self._chains = [
            (line_round, chain) for line_round, chain in self._chains if line_round < round
        ]
        for later in checkpoint_file.saved_rounds(self.checkpoints):
            if later >= round:
                checkpoint_file.discard(self.checkpoints, later)
        self._last_checkpoint = -1, self._last_checkpoint[1]

    def save_checkpoint(self, saved: Snapshot) -> None:
        """Write a checkpoint, unless the last one is of the same round."""
        round = int(saved.entries[-1]["round"])
        if round == self._last_checkpoint[0]:
            return
        start = time.monotonic()
        self.metrics.sync()
        config = self.path / "config.toml"
        digests = {"chain": self._chains[-1][1]}
        if config.exists():
            digests["config"] = checkpoint_file.content_digest(config.read_bytes())
        checkpoint_file.save(
            self.checkpoints,
            round,
            saved.arrays,
            snapshot_notes(saved, self.wall_seconds) | digests,
        )
        if not self._checkpointed and (self.path / "manifest.json").exists():
            self.update_manifest(checkpointed=True)
            self._checkpointed = True
        self._last_checkpoint = round, time.monotonic()
        self._checkpoint_seconds = self._last_checkpoint[1] - start

    def extend_run(self, config: str, rounds: int) -> None:
        """Extend the run to more rounds as in `config`; existing results are kept."""
        manifest = self.update_manifest()
        earlier_configs = [*manifest.get("extended", []), manifest.get("config")]
        checkpoint_file.replace_file(self.path / "config.toml", config.encode())
        changes = {
            "config": checkpoint_file.content_digest(config.encode()),
            "extended": earlier_configs,
            "rounds": rounds,
        }
        self.update_manifest(status="interrupted", message="", digest="", **changes)

    def restore(self, restart: bool = False) -> tuple[Snapshot | None, list[str]]:
        """Restore the newest usable checkpoint; return its snapshot and the damage found.

        The snapshot is None if the run has no checkpoint yet and starts from round 0. If
        checkpoints were written and none can be read, the run does so only if `restart` is true,
        else `UnrecoverableRun` is raised. Damaged files are set aside; evaluations after the
        checkpoint are dropped.
        """
        plan = plan_recovery(self.path)
        if plan.checkpoint is None and plan.had_checkpoint:
            if not restart:
                raise UnrecoverableRun(_unrecoverable_message(self.path, plan.messages))
            set_aside = [file.name for file in set_files_aside(self.path)]
            return None, [
                *plan.messages,
                f"started again from round 0; moved aside: {', '.join(set_aside)}",
            ]
        if plan.checkpoint is not None:
            self._check_config(plan.checkpoint.notes)
        repair_folder(self.path, plan)
        if plan.checkpoint is None:
            return None, plan.messages
        newest, lines = plan.checkpoint, plan.lines
        self._lost_line_round = newest.round if last_round(lines) != newest.round else None
        self._earlier_seconds, self._last_checkpoint = (
            newest.notes["wall"],
            (newest.round, time.monotonic()),
        )
        self._last_line_round, self._chains = newest.round, [(newest.round, plan.chain)]
        return restore_snapshot(newest.arrays, newest.notes, lines), plan.messages

    def _check_config(self, notes: dict[str, Any]) -> None:
        """Refuse to resume with a config.toml other than the checkpoint's or its extension."""
        config = self.path / "config.toml"
        digest = checkpoint_file.content_digest(config.read_bytes()) if config.exists() else None
        manifest, _ = read_manifest(self.path / "manifest.json")
        earlier = manifest.get("extended", []) if manifest.get("config") == digest else []
        if notes.get("config", digest) not in (digest, *earlier):
            raise UnrecoverableRun(
                f"{config} differs from the file that started the run; restore it, or start again "
                f"by `diamond run {config}`"
            )

    def drop_after(self, round: int) -> list[dict[str, Any]]:
        """Drop the evaluations after `round`, and return those before.

        If some are damaged, a copy of the file is set aside.
        """
        lines, intact = self.metrics.read_lines()
        remaining = [line for line in lines if line["round"] <= round]
        repair_folder(
            self.path,
            RecoveryPlan(None, remaining, "", [] if intact else [self.metrics.path], [], True),
        )
        self._chains = [(round, chain_digest(remaining))]
        return remaining


def _unrecoverable_message(path: Path, messages: list[str]) -> str:
    reasons = "; ".join(messages) or "they are gone"
    return (
        f"{path}: none of its checkpoints can be read ({reasons}); restore one from a copy, or "
        f"start again by `diamond resume {path} --restart`, which moves the damaged files aside"
    )
