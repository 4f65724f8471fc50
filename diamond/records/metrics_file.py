"""metrics.jsonl: an append-only file with one line per evaluation."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from .checkpoint import replace
from .strict_json import dumps, numbers

Entry = dict[str, float]
Own = Mapping[str, Any]  # one value per agent in each; None if unknown


class Metrics:
    """Lines of one run; an incomplete line left by a killed writer is removed."""

    def __init__(self, path: Path):
        self.path = path

    def append(self, entry: Entry, own: Own) -> None:
        """Append an evaluation in one write."""
        with self.path.open("ab", buffering=0) as stream:
            stream.write(written(entry, own) + b"\n")

    def sync(self) -> None:
        """Flush the appended lines to the disk."""
        with self.path.open("rb") as stream:
            os.fsync(stream.fileno())

    def lines(self) -> list[dict[str, Any]]:
        """Read every readable evaluation."""
        return self.readable()[0]

    def readable(self) -> tuple[list[dict[str, Any]], bool]:
        """Read the evaluations in order, and return whether all could be read.

        An incomplete last line is what a killed writer leaves, and does not count as damage.
        """
        found, whole = self._read()
        return [line for line, _ in found], whole

    def truncate(self, round: int) -> list[dict[str, Any]]:
        """Drop evaluations after `round`, and return the remaining ones."""
        kept = [line for line in self.lines() if line["round"] <= round]
        self.keep(kept)
        return kept

    def keep(self, lines: list[dict[str, Any]]) -> None:
        """Keep only these of the readable lines."""
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
        """Return each valid line with its bytes, and whether all lines are valid."""
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
    """Serialize an evaluation as a line."""
    agents = {name: np.asarray(value).tolist() for name, value in own.items()}
    return dumps({**entry, "agents": agents}).encode()


def read(raw: bytes) -> dict[str, Any]:
    """Parse the evaluation in a line; raises if the line is invalid."""
    line: dict[str, Any] = numbers(json.loads(raw))
    if int(line["round"]) != line["round"] or not isinstance(line["agents"], dict):
        raise ValueError("no evaluation")
    return line
