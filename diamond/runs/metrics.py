"""metrics.jsonl: one line an evaluation, only ever appended to."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from .checkpoint import replace
from .strict_json import dumps, numbers

Entry = dict[str, float]
Own = Mapping[str, Any]  # one value an agent in each; None where it is not known


class Metrics:
    """The lines of one run. What a killed writer has left is cut back to whole lines."""

    def __init__(self, path: Path):
        self.path = path

    def append(self, entry: Entry, own: Own) -> None:
        """Add an evaluation, in one write."""
        with self.path.open("ab", buffering=0) as stream:
            stream.write(written(entry, own) + b"\n")

    def sync(self) -> None:
        """Force what was appended to the disk."""
        with self.path.open("rb") as stream:
            os.fsync(stream.fileno())

    def lines(self) -> list[dict[str, Any]]:
        """Every evaluation that can be read."""
        return self.readable()[0]

    def readable(self) -> tuple[list[dict[str, Any]], bool]:
        """The evaluations that can be read, in their order, and whether that is all of them.

        A last line without its end is what a killed writer leaves, and no damage.
        """
        found, whole = self._read()
        return [line for line, _ in found], whole

    def truncate(self, round: int) -> list[dict[str, Any]]:
        """Drop what lies beyond `round`, and return what is left."""
        kept = [line for line in self.lines() if line["round"] <= round]
        self.keep(kept)
        return kept

    def keep(self, lines: list[dict[str, Any]]) -> None:
        """Leave these of the lines that can be read, and nothing else."""
        if not self.path.exists():
            return
        rounds = {line["round"] for line in lines}
        content = b"".join(raw for line, raw in self._read()[0] if line["round"] in rounds)
        held = self.path.read_bytes()
        if held.startswith(content):
            os.truncate(self.path, len(content))
        else:
            replace(self.path, content)

    def _read(self) -> tuple[list[tuple[dict[str, Any], bytes]], bool]:
        """Each sound line with its bytes, and whether there is none that is not."""
        found: list[tuple[dict[str, Any], bytes]] = []
        whole = True
        content = self.path.read_bytes() if self.path.exists() else b""
        for raw in content.split(b"\n")[:-1]:
            try:
                line = read(raw)
                if found and not line["round"] > found[-1][0]["round"]:
                    raise ValueError("out of order")
                found.append((line, raw + b"\n"))
            except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
                whole = False
        return found, whole


def written(entry: Entry, own: Own) -> bytes:
    """An evaluation as a line says it."""
    agents = {name: np.asarray(value).tolist() for name, value in own.items()}
    return dumps({**entry, "agents": agents}).encode()


def read(raw: bytes) -> dict[str, Any]:
    """The evaluation that a line says; raises what is wrong with it."""
    line: dict[str, Any] = numbers(json.loads(raw))
    if int(line["round"]) != line["round"] or not isinstance(line["agents"], dict):
        raise ValueError("no evaluation")
    return line
