"""Crash-safe checkpoints: arrays in safetensors, everything else in JSON.

A checkpoint is two files, `<round>.safetensors` and `<round>.json`. Each is written under another
name, flushed to the disk and renamed. The JSON is written last and holds the digests of the arrays
and of itself, so it validates both. The two newest checkpoints are kept: if the last is damaged,
the one before it is complete.
"""

import hashlib
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..core.parsing import refuse_unreadable
from .write_check import detect_full_disk

CHECKPOINTS_KEPT = 2
CHECKPOINT_FILE = re.compile(r"\d+\.(json|safetensors)(\.tmp)?")  # files set aside do not match


class Checkpoint(NamedTuple):
    """Data saved after `round` rounds."""

    round: int
    arrays: dict[str, np.ndarray]
    notes: dict[str, Any]


class DamagedCheckpoint(ValueError):
    """Checkpoint that differs from what was written; the message says how."""


def save(folder: Path, round: int, arrays: Mapping[str, Any], notes: Mapping[str, Any]) -> None:
    """Write a checkpoint of `round`, then remove all but the newest two."""
    from safetensors.numpy import save as serialize

    folder.mkdir(parents=True, exist_ok=True)
    content = serialize({name: np.asarray(a, order="C") for name, a in arrays.items()})
    body = {"round": round, "arrays": content_digest(content), "notes": dict(notes)}
    stem = folder / f"{round:010d}"
    replace_file(stem.with_suffix(".safetensors"), content, durable=False)
    sealed = {"sha256": content_digest(_canonical(body)), "body": body}
    replace_file(stem.with_suffix(".json"), json.dumps(sealed).encode())
    newest = {f"{newest:010d}" for newest in saved_rounds(folder)[-CHECKPOINTS_KEPT:]}
    for path in folder.iterdir():  # also removes leftovers of interrupted writes
        if CHECKPOINT_FILE.fullmatch(path.name) and path.name.split(".")[0] not in newest:
            path.unlink()


def load(folder: Path, round: int) -> Checkpoint:
    """Load the checkpoint of `round`; raises `DamagedCheckpoint` unless every bit is as written."""
    from safetensors.numpy import load as deserialize

    stem = folder / f"{round:010d}"
    with refuse_unreadable(DamagedCheckpoint, f"{stem}: not a whole checkpoint"):
        sealed = json.loads(stem.with_suffix(".json").read_bytes())
        body = sealed["body"]
        content = stem.with_suffix(".safetensors").read_bytes()
        if sealed["sha256"] != content_digest(_canonical(body)):
            raise DamagedCheckpoint(f"{stem}.json: its digest is not that of its content")
        if body["arrays"] != content_digest(content):
            raise DamagedCheckpoint(
                f"{stem}.safetensors: its digest is not the one in {stem.name}.json"
            )
        if body["round"] != round:
            raise DamagedCheckpoint(f"{stem}.json: it is of another round")
        return Checkpoint(round, deserialize(content), body["notes"])


def load_newest(folder: Path) -> Checkpoint:
    """Load the newest complete checkpoint; raises `DamagedCheckpoint` if there is none."""
    errors = [f"{folder}: no checkpoint there"]
    for round in reversed(saved_rounds(folder)):
        try:
            return load(folder, round)
        except DamagedCheckpoint as damage:
            errors.append(str(damage))
    raise DamagedCheckpoint(errors[-1])


def saved_rounds(folder: Path) -> list[int]:
    """List the rounds that have a checkpoint, complete or not, in ascending order."""
    return sorted(int(path.stem) for path in folder.glob("[0-9]*.json") if path.stem.isdigit())


def checkpoint_files(folder: Path, round: int) -> list[Path]:
    """List the files of a checkpoint, the JSON last; without it the arrays are ignored."""
    return [folder / f"{round:010d}{suffix}" for suffix in (".safetensors", ".json")]


def discard(folder: Path, round: int) -> None:
    """Remove a checkpoint, the JSON first."""
    for file in reversed(checkpoint_files(folder, round)):
        file.unlink(missing_ok=True)


def replace_file(path: Path, *content: Any, durable: bool = True) -> None:
    """Replace the content of `path` atomically.

    If `durable` is true, the new name is on the disk before this function returns.
    """
    temporary = path.with_name(path.name + ".tmp")
    with detect_full_disk(path), temporary.open("wb") as stream:
        stream.writelines(content)
        stream.flush()
        os.fsync(stream.fileno())
    os.replace(temporary, path)
    if durable and os.name == "posix":
        directory = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)


def _canonical(body: Any) -> bytes:
    return json.dumps(body, sort_keys=True, separators=(",", ":")).encode()


def content_digest(content: bytes) -> str:
    """Return the digest of a file."""
    return hashlib.sha256(content).hexdigest()
