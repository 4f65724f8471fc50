"""Crash-safe, resumable writer of a run folder."""

import hashlib
import json
import time
from pathlib import Path
from typing import Any

from . import checkpoint
from .digest_chain import follow
from .folder_lock import locked
from .folder_recovery import Found, Lost, last, look, repair, set_aside
from .folder_recovery import manifest as legible
from .metrics_file import Metrics, Own, read, written
from .snapshot import Snapshot, notes, restored
from .strict_json import dumps
from .trajectory_digest import final

PATIENCE = 2.0  # minimum seconds between checkpoints
SHARE = 1 / 500  # maximum share of time spent on checkpoints


class Writer:
    """Writer of evaluations and periodic checkpoints.

    Lines of metrics.jsonl reach the disk before the checkpoint that follows them, so a checkpoint
    is never ahead of the lines. Lines after the checkpoint are dropped on resuming.
    """

    def __init__(self, path: Path, patience: float = PATIENCE):
        self.path, self.patience = Path(path), patience
        self.path.mkdir(parents=True, exist_ok=True)
        self.metrics = Metrics(self.path / "metrics.jsonl")
        self.checkpoints = self.path / "checkpoint"
        self._lock = locked(self.path / ".lock")
        self._begun = time.monotonic()
        self._before = 0.0  # wall seconds of earlier sessions
        self._saved = -1, self._begun  # round and time of the last checkpoint
        self._took = 0.0  # seconds of writing that checkpoint
        self._checkpointed = False  # whether the manifest records a checkpoint
        self._noted = -1  # round of the last line
        self._missing: int | None = None  # round of the checkpoint, if its line is lost
        self._chain = [(-1, "")]  # digests of all lines up to a round, of this session

    def __enter__(self) -> "Writer":
        return self

    def __exit__(self, *_: object) -> None:
        self._lock.close()

    @property
    def wall(self) -> float:
        """Return the seconds spent on this run, earlier sessions included."""
        return self._before + time.monotonic() - self._begun

    def begin(self, manifest: dict[str, Any], config: str, anew: bool = True) -> None:
        """Start the run; if `anew` is true, remove everything of an earlier attempt."""
        checkpoint.replace(self.path / "config.toml", config.encode(), settle=False)
        self.manifest(**manifest, config=sealed(config.encode()))
        if not anew:
            return
        self.metrics.path.write_bytes(b"")
        for round in checkpoint.rounds(self.checkpoints):
            checkpoint.discard(self.checkpoints, round)

    def manifest(self, **changes: Any) -> dict[str, Any]:
        """Update the manifest with `changes`, write and return it."""
        path = self.path / "manifest.json"
        known = json.loads(path.read_text()) if path.exists() else {}
        known |= changes
        if changes:
            checkpoint.replace(path, dumps(known, indent=1).encode())
        return known

    def append(self, entry: dict[str, float], own: Own) -> None:
        """Write an evaluation."""
        self.metrics.append(entry, own)
        line = read(written(entry, own))
        self._chain.append((line["round"], follow([line], self._chain[-1][1])))

    def digest(self, x: Any, y: Any) -> str:
        """Return the digest of the run that ends at x and y."""
        return final(self._chain[-1][1], x, y)

    def note(self, saved: Snapshot, last: bool = False) -> None:
        """Write an evaluation, and a checkpoint if it is the last or one is due."""
        round = int(saved.entries[-1]["round"])
        if round == self._missing:  # measured again, since its line was lost
            self._missing = None
            self.metrics.append(saved.entries[-1], saved.own[-1])
            return
        if round <= self._noted:
            self._rewind(round)
        self._noted = round
        self.append(saved.entries[-1], saved.own[-1])
        pause = max(self.patience, self._took / SHARE) if self.patience else 0.0
        if last or time.monotonic() - self._saved[1] >= pause:
            self.save(saved)

    def _rewind(self, round: int) -> None:
        """Discard everything written for `round` and later, after a rollback."""
        lines = self.metrics.truncate(round - 1)
        if self._chain[0][0] >= round:  # back beyond the start of this session
            self._chain = [(round - 1, follow(lines))]
        self._chain = [(at, chain) for at, chain in self._chain if at < round]
        for later in checkpoint.rounds(self.checkpoints):
            if later >= round:
                checkpoint.discard(self.checkpoints, later)
        self._saved = -1, self._saved[1]

    def save(self, saved: Snapshot) -> None:
        """Write a checkpoint, unless the last one is of the same round."""
        round = int(saved.entries[-1]["round"])
        if round == self._saved[0]:
            return
        begun = time.monotonic()
        self.metrics.sync()
        config = self.path / "config.toml"
        vouched = {"chain": self._chain[-1][1]}
        if config.exists():
            vouched["config"] = sealed(config.read_bytes())
        checkpoint.save(self.checkpoints, round, saved.arrays, notes(saved, self.wall) | vouched)
        if not self._checkpointed and (self.path / "manifest.json").exists():
            self.manifest(checkpointed=True)
            self._checkpointed = True
        self._saved = round, time.monotonic()
        self._took = self._saved[1] - begun

    def extend(self, config: str, rounds: int) -> None:
        """Extend the run to more rounds as in `config`; existing results are kept."""
        known = self.manifest()
        before = [*known.get("extended", []), known.get("config")]
        checkpoint.replace(self.path / "config.toml", config.encode())
        new = {"config": sealed(config.encode()), "extended": before, "rounds": rounds}
        self.manifest(status="interrupted", message="", digest="", **new)

    def restore(self, restart: bool = False) -> tuple[Snapshot | None, list[str]]:
        """Restore the newest usable checkpoint; return its snapshot and the damage found.

        The snapshot is None if the run has no checkpoint yet and starts from round 0. If
        checkpoints were written and none can be read, the run does so only if `restart` is true,
        else `Lost` is raised. Damaged files are set aside; evaluations after the checkpoint are
        dropped.
        """
        there = look(self.path)
        if there.chosen is None and there.begun:
            if not restart:
                raise Lost(_lost(self.path, there.said))
            moved = [file.name for file in set_aside(self.path)]
            return None, [*there.said, f"begun anew; set aside: {', '.join(moved)}"]
        if there.chosen is not None:
            self._same(there.chosen.notes)
        repair(self.path, there)
        if there.chosen is None:
            return None, there.said
        chosen, lines = there.chosen, there.lines
        self._missing = chosen.round if last(lines) != chosen.round else None
        self._before, self._saved = chosen.notes["wall"], (chosen.round, time.monotonic())
        self._noted, self._chain = chosen.round, [(chosen.round, there.chain)]
        return restored(chosen.arrays, chosen.notes, lines), there.said

    def _same(self, notes: dict[str, Any]) -> None:
        """Refuse to resume with a config.toml other than the checkpoint's or its extension."""
        config = self.path / "config.toml"
        held = sealed(config.read_bytes()) if config.exists() else None
        known, _ = legible(self.path / "manifest.json")
        before = known.get("extended", []) if known.get("config") == held else []
        if notes.get("config", held) not in (held, *before):
            raise Lost(
                f"{config} is not what the run was made by; restore it as it was, or begin anew by "
                f"`diamond run {config}`"
            )

    def after(self, round: int) -> list[dict[str, Any]]:
        """Drop the evaluations after `round`, and return those before.

        If some are damaged, a copy of the file is set aside.
        """
        lines, whole = self.metrics.readable()
        kept = [line for line in lines if line["round"] <= round]
        repair(self.path, Found(None, kept, "", [] if whole else [self.metrics.path], [], True))
        self._chain = [(round, follow(kept))]
        return kept


def sealed(content: bytes) -> str:
    """Return the digest of a file."""
    return hashlib.sha256(content).hexdigest()


def _lost(path: Path, said: list[str]) -> str:
    why = "; ".join(said) or "they are gone"
    return (
        f"{path}: none of its checkpoints can be read ({why}); restore one from a copy, or begin "
        f"anew by `diamond resume {path} --restart`, which sets aside what is there"
    )
