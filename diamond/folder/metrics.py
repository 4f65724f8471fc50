"""metrics.jsonl: one line an evaluation, only ever appended to."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from .strict import dumps, numbers

Entry = dict[str, float]
Own = Mapping[str, Any]  # one value an agent in each; None where it is not known


class Metrics:
    """The lines of one run. What a killed writer has left is cut back to whole lines."""

    def __init__(self, path: Path):
        self.path = path

    def append(self, entry: Entry, own: Own) -> None:
        """Add an evaluation, in one write."""
        agents = {name: np.asarray(value).tolist() for name, value in own.items()}
        line = dumps({**entry, "agents": agents}) + "\n"
        with self.path.open("ab", buffering=0) as stream:
            stream.write(line.encode())

    def sync(self) -> None:
        """Force what was appended to the disk."""
        with self.path.open("rb") as stream:
            os.fsync(stream.fileno())

    def lines(self) -> list[dict[str, Any]]:
        """Every evaluation up to the first line that is torn or damaged."""
        return [line for line, _ in self._whole()]

    def truncate(self, round: int) -> list[dict[str, Any]]:
        """Drop what lies beyond `round`, and return what is left."""
        kept = [(line, end) for line, end in self._whole() if line["round"] <= round]
        if self.path.exists():
            os.truncate(self.path, kept[-1][1] if kept else 0)
        return [line for line, _ in kept]

    def _whole(self) -> list[tuple[dict[str, Any], int]]:
        """Each sound line and where it ends."""
        found: list[tuple[dict[str, Any], int]] = []
        end = 0
        content = self.path.read_bytes() if self.path.exists() else b""
        for raw in content.splitlines(keepends=True):
            end += len(raw)
            try:
                line = numbers(json.loads(raw))
                line["round"], line["agents"]
            except (ValueError, KeyError, TypeError):
                break
            if not raw.endswith(b"\n"):
                break
            found.append((line, end))
        return found
