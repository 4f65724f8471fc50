"""Reader of run folders."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import checkpoint_file
from .folder_lock import is_abandoned
from .folder_recovery import read_manifest
from .metrics_file import MetricsFile
from .strict_json import restore_nan

KILLED_MESSAGE = "its process has ended; `diamond resume` continues it"


class DamagedRun(ValueError):
    """Error: the manifest of a folder cannot be read."""


@dataclass(frozen=True)
class StoredRun:
    """Stored data of one run."""

    path: Path
    manifest: dict[str, Any]
    lines: list[dict[str, Any]]

    @property
    def last_evaluation(self) -> dict[str, Any]:
        """Return the last evaluation."""
        return self.lines[-1] if self.lines else {}

    def digest(self) -> str:
        """Recompute the digest of the trajectory from the files."""
        from .trajectory_digest import digest_checkpoint

        folder = self.path / "checkpoint"
        return digest_checkpoint(
            self.lines,
            checkpoint_file.load(folder, checkpoint_file.saved_rounds(folder)[-1]).arrays,
        )


def agent_columns(manifest: Mapping[str, Any], agents: int) -> list[str]:
    """Return the names of the agents in the run: those of the sites, if sites have names."""
    if "site" in manifest:
        return [str(manifest["site"]["name"])]
    sites = manifest["network"].get("sites") or []
    return [str(name) for name in sites] or [f"agent {i}" for i in range(agents)]


def open_runs(folders: Iterable[Path]) -> list[StoredRun]:
    """Open the runs at or below `folders`; raises FileNotFoundError if there are none."""
    runs: dict[Path, StoredRun] = {}
    for folder in map(Path, folders):
        runs_inside = find_runs(folder)
        if not runs_inside:
            raise FileNotFoundError(
                f"{folder}: no run found; a run's folder contains manifest.json, and `diamond "
                f"list` names those below runs/"
            )
        for run in runs_inside:
            runs.setdefault(run.path.absolute(), run)
    return list(runs.values())


def sort_by_start(runs: Iterable[StoredRun]) -> list[StoredRun]:
    """Sort the runs by start time, which is their order in a comparison."""
    return sorted(runs, key=lambda run: run.manifest["started"])


def open_single_run(folder: Path) -> StoredRun:
    """Open the only run at or below `folder`; raises FileNotFoundError if there is not one."""
    runs = open_runs([folder])
    if len(runs) > 1:
        names = ", ".join(str(run.path) for run in runs[:4])
        ellipsis = ", ..." if len(runs) > 4 else ""
        raise FileNotFoundError(
            f"{folder}: {len(runs)} runs are there; name one, {names}{ellipsis}"
        )
    return runs[0]


def find_runs(folder: Path, on_unreadable: Callable[[str], None] | None = None) -> list[StoredRun]:
    """Open the runs in `folder`: itself, or up to two levels down.

    `on_unreadable` is called with the error of each unreadable run; without it, the first one
    raises `DamagedRun`.
    """
    folders = [folder, *sorted(folder.glob("*/")), *sorted(folder.glob("*/*/"))]
    runs = []
    for candidate in folders:
        if (candidate / "manifest.json").is_file():
            try:
                runs.append(open_run(candidate))
            except DamagedRun as error:
                if on_unreadable is None:
                    raise
                on_unreadable(str(error))
    return runs


def open_run(path: Path) -> StoredRun:
    """Open the run in the folder `path`."""
    content, damage = read_manifest(path / "manifest.json")
    if damage or not content:
        raise DamagedRun(
            f"{path / 'manifest.json'} is damaged ({damage or 'it is gone'}); run it again, or "
            f"`diamond resume {path}`, which writes it again"
        )
    content["resolved"] = restore_nan(content["resolved"])
    if content["status"] == "running" and is_abandoned(path / ".lock"):
        content |= {"status": "interrupted", "message": KILLED_MESSAGE}
    return StoredRun(path, content, MetricsFile(path / "metrics.jsonl").lines())
