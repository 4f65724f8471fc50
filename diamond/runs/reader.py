"""Run folders as they lie on disk."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import checkpoint
from .lock import abandoned
from .metrics import Metrics
from .recovery import manifest
from .strict_json import numbers

KILLED = "its process is gone; `diamond resume` goes on"


class DamagedRun(ValueError):
    """A folder whose manifest cannot be read."""


@dataclass(frozen=True)
class Stored:
    """What one run has written so far."""

    path: Path
    manifest: dict[str, Any]
    lines: list[dict[str, Any]]

    @property
    def last(self) -> dict[str, Any]:
        """Its last evaluation."""
        return self.lines[-1] if self.lines else {}

    def digest(self) -> str:
        """The digest of its trajectory, computed anew from what is on the disk."""
        from .trajectory_digest import stored

        folder = self.path / "checkpoint"
        return stored(self.lines, checkpoint.load(folder, checkpoint.rounds(folder)[-1]).arrays)


def runs(folders: Iterable[Path]) -> list[Stored]:
    """The runs at or below `folders`; raises FileNotFoundError where there is none."""
    found: dict[Path, Stored] = {}
    for folder in map(Path, folders):
        here = below(folder)
        if not here:
            raise FileNotFoundError(
                f"{folder}: no run there; a run's folder holds manifest.json, and `diamond list` "
                f"names those below runs/"
            )
        for run in here:
            found.setdefault(run.path.absolute(), run)
    return list(found.values())


def as_begun(found: Iterable[Stored]) -> list[Stored]:
    """The runs in the order in which they were begun, which is that of their comparison."""
    return sorted(found, key=lambda run: run.manifest["started"])


def one(folder: Path) -> Stored:
    """The one run at or below `folder`; raises FileNotFoundError where there is none or more."""
    found = runs([folder])
    if len(found) > 1:
        names = ", ".join(str(run.path) for run in found[:4])
        more = ", ..." if len(found) > 4 else ""
        raise FileNotFoundError(f"{folder}: {len(found)} runs are there; name one, {names}{more}")
    return found[0]


def below(folder: Path, unreadable: Callable[[str], None] | None = None) -> list[Stored]:
    """The runs in `folder`: itself, or up to two levels down.

    `unreadable` is told of those that cannot be read; without it, the first raises `DamagedRun`.
    """
    places = [folder, *sorted(folder.glob("*/")), *sorted(folder.glob("*/*/"))]
    found = []
    for place in places:
        if (place / "manifest.json").is_file():
            try:
                found.append(open_run(place))
            except DamagedRun as error:
                if unreadable is None:
                    raise
                unreadable(str(error))
    return found


def open_run(path: Path) -> Stored:
    """The run in the folder `path`."""
    known, damage = manifest(path / "manifest.json")
    if damage or not known:
        raise DamagedRun(
            f"{path / 'manifest.json'} is damaged ({damage or 'it is gone'}); run it again, or "
            f"`diamond resume {path}`, which writes it anew"
        )
    known["resolved"] = numbers(known["resolved"])
    if known["status"] == "running" and abandoned(path / ".lock"):
        known |= {"status": "interrupted", "message": KILLED}
    return Stored(path, known, Metrics(path / "metrics.jsonl").lines())
