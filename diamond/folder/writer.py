"""A run's folder while it is made: killed at any instant, it can be gone on with."""

import json
import time
from pathlib import Path
from typing import Any

import numpy as np

from .. import checkpoint
from ..checkpoint import Checkpoint
from ..record import Saved
from . import found
from .lock import locked
from .metrics import Metrics
from .strict import dumps

PATIENCE = 2.0  # seconds between checkpoints, at least
SHARE = 1 / 500  # of the time may go into checkpoints


class Writer:
    """Writes evaluations as they come and a checkpoint now and then.

    Lines of metrics.jsonl reach the disk before the checkpoint that follows them, so a checkpoint
    never knows more than the lines do. What the lines have beyond it is dropped on resuming.
    """

    def __init__(self, path: Path, patience: float = PATIENCE):
        self.path, self.patience = Path(path), patience
        self.path.mkdir(parents=True, exist_ok=True)
        self.metrics = Metrics(self.path / "metrics.jsonl")
        self.checkpoints = self.path / "checkpoint"
        self._lock = locked(self.path / ".lock")
        self._begun = time.monotonic()
        self._before = 0.0  # wall seconds of earlier sittings
        self._saved = -1, self._begun  # round and time of the last checkpoint
        self._took = 0.0  # seconds of writing it
        self._noted = -1  # round of the last line

    def __enter__(self) -> "Writer":
        return self

    def __exit__(self, *_: object) -> None:
        self._lock.close()

    @property
    def wall(self) -> float:
        """Seconds spent on this run, those of earlier sittings included."""
        return self._before + time.monotonic() - self._begun

    def begin(self, manifest: dict[str, Any], config: str, anew: bool = True) -> None:
        """Say what is run here; `anew`, nothing of an earlier attempt is left."""
        checkpoint.replace(self.path / "config.toml", config.encode(), settle=False)
        self.manifest(**manifest)
        if not anew:
            return
        self.metrics.path.write_bytes(b"")
        for round in checkpoint.rounds(self.checkpoints):
            checkpoint.discard(self.checkpoints, round)

    def manifest(self, **changes: Any) -> dict[str, Any]:
        """The manifest with `changes`, which are written."""
        path = self.path / "manifest.json"
        known = json.loads(path.read_text()) if path.exists() else {}
        known |= changes
        if changes:
            checkpoint.replace(path, dumps(known, indent=1).encode())
        return known

    def note(self, saved: Saved, last: bool = False) -> None:
        """Write an evaluation; a checkpoint too if it is the last or it is time for one."""
        round = int(saved.entries[-1]["round"])
        if round <= self._noted:
            self._rewind(round)
        self._noted = round
        self.metrics.append(saved.entries[-1], saved.own[-1])
        pause = max(self.patience, self._took / SHARE) if self.patience else 0.0
        if last or time.monotonic() - self._saved[1] >= pause:
            self.save(saved)

    def _rewind(self, round: int) -> None:
        """The run has gone back: what was written of `round` and later no longer holds."""
        self.metrics.truncate(round - 1)
        for later in checkpoint.rounds(self.checkpoints):
            if later >= round:
                checkpoint.discard(self.checkpoints, later)
        self._saved = -1, self._saved[1]

    def save(self, saved: Saved) -> None:
        """Write a checkpoint, unless the last one is of the same round."""
        round = int(saved.entries[-1]["round"])
        if round == self._saved[0]:
            return
        begun = time.monotonic()
        self.metrics.sync()
        notes = {"seconds": saved.seconds, "wall": self.wall, "found": found.told(saved.found)}
        checkpoint.save(self.checkpoints, round, saved.arrays, notes)
        self._saved = round, time.monotonic()
        self._took = self._saved[1] - begun

    def restore(self) -> tuple[Saved | None, list[str]]:
        """Where the run stood at its newest whole checkpoint, and what was wrong with later ones.

        None: there is no such checkpoint, the run begins anew. Whatever lies beyond the checkpoint
        is removed.
        """
        lines = self.metrics.lines()
        measured = {line["round"] for line in lines}
        complaints: list[str] = []
        chosen: Checkpoint | None = None
        for round in reversed(checkpoint.rounds(self.checkpoints)):
            try:
                if round not in measured:
                    raise checkpoint.Damaged(f"{self.metrics.path} lacks round {round}")
                chosen = checkpoint.load(self.checkpoints, round)
                break
            except checkpoint.Damaged as damage:
                complaints.append(str(damage))
                checkpoint.discard(self.checkpoints, round)
        lines = self.metrics.truncate(chosen.round if chosen else -1)
        if chosen is None:
            return None, complaints
        self._before, self._saved = chosen.notes["wall"], (chosen.round, time.monotonic())
        self._noted = chosen.round
        numbers = found.read(chosen.notes["found"])
        entries = [{k: v for k, v in line.items() if k != "agents"} for line in lines]
        own = [{k: np.array(v) for k, v in line["agents"].items()} for line in lines]
        return Saved(chosen.arrays, numbers, chosen.notes["seconds"], entries, own), complaints
