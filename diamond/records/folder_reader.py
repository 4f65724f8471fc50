"""Reader of run folders."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import checkpoint
from .folder_lock import abandoned
from .folder_recovery import manifest
from .metrics_file import Metrics
from .strict_json import numbers

KILLED = "its process is gone; `diamond resume` goes on"


class DamagedRun(ValueError):
    """Error: the manifest of a folder cannot be read."""


@dataclass(frozen=True)
class Stored:
    """Stored data of one run."""

    path: Path
    manifest: dict[str, Any]
    lines: list[dict[str, Any]]

    @property
    def last(self) -> dict[str, Any]:
        """Return the last evaluation."""
        return self.lines[-1] if self.lines else {}

    def digest(self) -> str:
        """Recompute the digest of the trajectory from the files."""
        from .trajectory_digest import stored

        folder = self.path / "checkpoint"
        return stored(self.lines, checkpoint.load(folder, checkpoint.rounds(folder)[-1]).arrays)


def runs(folders: Iterable[Path]) -> list[Stored]:
    """Open the runs at or below `folders`; raises FileNotFoundError if there are none."""
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
    """Sort the runs by start time, which is their order in a comparison."""
    return sorted(found, key=lambda run: run.manifest["started"])


def one(folder: Path) -> Stored:
    """Open the only run at or below `folder`; raises FileNotFoundError if there is not one."""
    found = runs([folder])
    if len(found) > 1:
        names = ", ".join(str(run.path) for run in found[:4])
        more = ", ..." if len(found) > 4 else ""
        raise FileNotFoundError(f"{folder}: {len(found)} runs are there; name one, {names}{more}")
    return found[0]


def below(folder: Path, unreadable: Callable[[str], None] | None = None) -> list[Stored]:
    """Open the runs in `folder`: itself, or up to two levels down.

    `unreadable` is called with the error of each unreadable run; without it, the first one raises
    `DamagedRun`.
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
    """Open the run in the folder `path`."""
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
