"""Journal of the state of each edge in each round, written before anyone acts on it.

Entries are appended and flushed to the disk. An entry of an edge that was up includes the received
message, so that an agent that was set back to its checkpoint repeats the same rounds without
requests. Each checkpoint starts a new file, which begins with the known states of earlier rounds;
files older than the checkpoint before the last are removed.
"""

import json
import os
import struct
from bisect import bisect_right
from collections.abc import Iterable
from pathlib import Path
from typing import Any, BinaryIO

from ..records import checkpoint
from . import wire_format
from .wire_format import Frame, FrameError

UP, DOWN, YES = "up", "down", "yes"  # yes: bound by the other end's decision
LENGTH = struct.Struct("<Q")


class DamagedJournal(ValueError):
    """Error: a journal differs from what was written; the message says which, and where."""


class Words:
    """Votes by round, run-length encoded: rounds are settled in order, and mostly alike."""

    def __init__(self, runs: Iterable[tuple[int, str]] = (), end: int = 0):
        self.runs, self.end = [(int(t), str(word)) for t, word in runs], end

    def get(self, t: int) -> str:
        """Return the vote of round t; empty if there is none yet."""
        place = bisect_right(self.runs, t, key=lambda run: run[0]) - 1
        return self.runs[place][1] if t < self.end and place >= 0 else ""

    def until(self, t: int) -> int:
        """Return the first round after t with another vote than round t, or none yet."""
        after = bisect_right(self.runs, t, key=lambda run: run[0])
        return self.runs[after][0] if after < len(self.runs) else self.end

    def put(self, t: int, word: str) -> None:
        """Set the vote of round t; only a `YES` is ever replaced."""
        held = self.get(t)
        if held == word:
            return
        if held not in ("", YES) or t < self.end - 1:
            raise ValueError(f"round {t} is {held or 'over'}, it cannot become {word}")
        if held == YES:
            self.runs.pop()
        elif t > self.end:
            self.runs.append((self.end, ""))
        if not self.runs or self.runs[-1][1] != word:
            self.runs.append((t, word))
        self.end = t + 1

    def forget(self, before: int) -> None:
        """Discard rounds before `before`."""
        while len(self.runs) > 1 and self.runs[1][0] <= before:
            self.runs.pop(0)


class EdgeJournal:
    """Votes on all edges of one agent, kept in `folder` if given."""

    def __init__(self, neighbours: Iterable[int], run: str, folder: Path | None = None):
        self.words = {j: Words() for j in neighbours}
        self.heard: dict[tuple[int, int], Frame] = {}  # messages for repeating rounds
        self.run, self.folder = run, folder
        self._stream: BinaryIO | None = None

    def word(self, j: int, t: int) -> str:
        """Return the state of the edge to j in round t."""
        return self.words[j].get(t)

    def write(
        self, j: int, t: int, word: str, message: Frame = b"", until: int | None = None
    ) -> None:
        """Write the vote of round t, or of all rounds from t to before `until`.

        The vote is durable once this method returns.
        """
        rounds = range(t, t + 1 if until is None else until)
        self._append(b"".join(_entry(self._header(j, s, word), message) for s in rounds))
        for s in rounds:
            self.words[j].put(s, word)

    def turn(self, t: int, safe: int, wanted: int) -> None:
        """Start a new file after the checkpoint of round t, and discard what is not needed.

        The agent itself is never set back before round `safe`, nor a neighbour before `wanted`.
        """
        for words in self.words.values():
            words.forget(min(safe, wanted))
        self.heard = {(j, s): m for (j, s), m in self.heard.items() if s >= t}
        if self.folder is None:
            return
        self.close()
        told = {str(j): [words.runs, words.end] for j, words in self.words.items()}
        head = _entry({"kind": "all", "run": self.run}, json.dumps(told).encode())
        head += b"".join(_entry(self._header(j, s, UP), m) for (j, s), m in self.heard.items())
        self._stream = _begun(self.folder / f"{t:010d}.log", head)
        rounds = [int(path.stem) for path in self.folder.glob("*.log")]
        oldest = max((s for s in rounds if s <= safe), default=0)
        for s in rounds:
            if s < oldest:
                (self.folder / f"{s:010d}.log").unlink()

    def restore(self, t: int) -> None:
        """Read the journal; keep messages of rounds from t on in memory."""
        if self.folder is None:
            return
        paths = sorted(self.folder.glob("*.log"))
        for number, path in enumerate(paths):
            for header, content in _entries(path, last=path == paths[-1]):
                self._apply(header, content, t, first=number == 0)
        if paths:
            self._stream = paths[-1].open("ab")

    def close(self) -> None:
        """Close the file."""
        if self._stream:
            self._stream.close()
            self._stream = None

    def _apply(self, header: dict[str, Any], content: bytes, t: int, first: bool) -> None:
        if header["run"] != self.run:
            return
        if header["kind"] == "all":
            if first:
                told = json.loads(content).items()
                self.words = {int(j): Words(runs, end) for j, (runs, end) in told}
            return
        j, round = header["neighbour"], header["round"]
        if self.word(j, round) in ("", YES):
            self.words[j].put(round, header["kind"])
        if header["kind"] == UP and round >= t:
            self.heard[j, round] = content

    def _header(self, j: int, t: int, word: str) -> dict[str, Any]:
        return {"kind": word, "run": self.run, "neighbour": j, "round": t}

    def _append(self, entry: bytes) -> None:
        if self.folder is None:
            return
        if self._stream is None:
            self._stream = _begun(self.folder / f"{0:010d}.log", b"")
        self._stream.write(entry)
        self._stream.flush()
        os.fsync(self._stream.fileno())


def _begun(path: Path, head: bytes) -> BinaryIO:
    """Create a file with that head."""
    path.parent.mkdir(parents=True, exist_ok=True)
    checkpoint.replace(path, head)
    return path.open("ab")


def _entry(header: dict[str, Any], content: Frame) -> bytes:
    packed = wire_format.pack(header, content)
    return LENGTH.pack(len(packed)) + packed


def _entries(path: Path, last: bool) -> list[tuple[dict[str, Any], bytes]]:
    """Return the complete entries of a file; cut a torn entry off the end of the `last` one.

    A torn entry never took effect. Other unreadable entries did, so they are not skipped.
    """
    content, start, found = path.read_bytes(), 0, []
    while start < len(content):
        entry = _framed(content, start)
        if entry is None:
            if not last or not _torn(content, start):
                raise DamagedJournal(
                    f"{path} is damaged at byte {start}, and what it says of the rounds after that "
                    f"may have been acted on: restore it from a copy, or begin anew at every site"
                )
            os.truncate(path, start)
            break
        header, rest, start = entry
        found.append((header, rest))
    return found


def _framed(content: bytes, start: int) -> tuple[dict[str, Any], bytes, int] | None:
    """Return the entry that starts there, and its end; None if it is incomplete."""
    begin = start + LENGTH.size
    if begin > len(content):
        return None
    (length,) = LENGTH.unpack_from(content, start)
    try:
        header, rest = wire_format.unpack(content[begin : begin + length], len(content))
    except FrameError:
        return None
    return header, bytes(rest), begin + length


def _torn(content: bytes, start: int) -> bool:
    """Return whether an interrupted append leaves these bytes: cut short, or trailing zeros.

    If a valid entry follows, the append was not interrupted.
    """
    place = content.find(wire_format.MAGIC, start + LENGTH.size + 1)
    while place >= 0:
        if _framed(content, place - LENGTH.size):
            return False
        place = content.find(wire_format.MAGIC, place + 1)
    rest = content[start:]
    if len(rest) < LENGTH.size or not any(rest):
        return True
    (length,) = LENGTH.unpack_from(rest)
    cut = length > len(rest) - LENGTH.size
    return cut or not any(rest[-wire_format.SEAL.size :])
