"""metrics.jsonl: an append-only file with one line per evaluation."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from .checkpoint_file import replace_file
from .strict_json import dumps, restore_nan
from .write_check import detect_full_disk

Entry = dict[str, float]
AgentValues = Mapping[str, Any]  # one value per agent in each; None if unknown


class MetricsFile:
    """Lines of one run; an incomplete line left by a killed writer is removed."""

    def __init__(self, path: Path):
        self.path = path

    def append(self, entry: Entry, per_agent: AgentValues) -> None:
        """Append an evaluation in one write."""
        with detect_full_disk(self.path), self.path.open("ab", buffering=0) as stream:
            stream.write(format_line(entry, per_agent) + b"\n")

    def sync(self) -> None:
        """Flush the appended lines to the disk."""
        with detect_full_disk(self.path), self.path.open("rb") as stream:
            os.fsync(stream.fileno())

    def lines(self) -> list[dict[str, Any]]:
        """Read every readable evaluation."""
        return self.read_lines()[0]

    def read_lines(self) -> tuple[list[dict[str, Any]], bool]:
        """Read the evaluations in order, and return whether all could be read.

        An incomplete last line is what a killed writer leaves, and does not count as damage.
        """
        lines, intact = self._parse_lines()
        return [line for line, _ in lines], intact

    def truncate(self, round: int) -> list[dict[str, Any]]:
        """Drop evaluations after `round`, and return the remaining ones."""
        remaining = [line for line in self.lines() if line["round"] <= round]
        self.keep_only(remaining)
        return remaining

    def keep_only(self, lines: list[dict[str, Any]]) -> None:
        """Keep only these of the readable lines."""
        if not self.path.exists():
            return
        rounds = {line["round"] for line in lines}
        content = b"".join(raw for line, raw in self._parse_lines()[0] if line["round"] in rounds)
        current = self.path.read_bytes()
        if current.startswith(content):
            os.truncate(self.path, len(content))
        else:
            replace_file(self.path, content)

    def _parse_lines(self) -> tuple[list[tuple[dict[str, Any], bytes]], bool]:
        """Return each valid line with its bytes, and whether all lines are valid."""
        lines: list[tuple[dict[str, Any], bytes]] = []
        intact = True
        content = self.path.read_bytes() if self.path.exists() else b""
        for raw in content.split(b"\n")[:-1]:
            try:
                line = parse_line(raw)
                if lines and not line["round"] > lines[-1][0]["round"]:
                    raise ValueError("out of order")
                lines.append((line, raw + b"\n"))
            except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
                intact = False
        return lines, intact


def format_line(entry: Entry, per_agent: AgentValues) -> bytes:
    """Serialize an evaluation as a line."""
    agents = {name: np.asarray(value).tolist() for name, value in per_agent.items()}
    return dumps({**entry, "agents": agents}).encode()


def parse_line(raw: bytes) -> dict[str, Any]:
    """Parse the evaluation in a line; raises if the line is invalid."""
    line: dict[str, Any] = restore_nan(json.loads(raw))
    if int(line["round"]) != line["round"] or not isinstance(line["agents"], dict):
        raise ValueError("no evaluation")
    return line
