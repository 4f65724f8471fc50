"""Run folders as they lie on disk."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .. import checkpoint
from .metrics import Metrics
from .strict import numbers


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
        from .trajectory import stored

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


def below(folder: Path) -> list[Stored]:
    """The runs in `folder`: itself, or up to two levels down."""
    places = [folder, *sorted(folder.glob("*/")), *sorted(folder.glob("*/*/"))]
    return [open_run(place) for place in places if (place / "manifest.json").is_file()]


def open_run(path: Path) -> Stored:
    """The run in the folder `path`."""
    try:
        manifest = json.loads((path / "manifest.json").read_text())
    except ValueError as error:
        raise ValueError(f"{path / 'manifest.json'} is damaged ({error}); run it again") from error
    manifest["resolved"] = numbers(manifest["resolved"])
    return Stored(path, manifest, Metrics(path / "metrics.jsonl").lines())
