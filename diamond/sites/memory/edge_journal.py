"""Journal of the state of each edge in each round, written before anyone acts on it.

Entries are appended and flushed to the disk. An entry of an edge that was up includes the received
message, so that an agent that was set back to its checkpoint repeats the same rounds without
requests. Each checkpoint starts a new file, which begins with the known states of earlier rounds;
files older than the checkpoint before the last are removed.

Votes on the state travel between the two ends of an edge (`messages.Vote`). From the journals of
all sites a simulation repeats the run (`recorded_network`).
"""

import json
import os
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from ...core.parsing import refuse_unreadable
from ...network import Network
from ...network.link_interruptions import interrupted
from ...records import checkpoint_file
from ..transport import wire_format
from ..transport.messages import DOWN, UP, YES
from ..transport.wire_format import Frame, FrameError
from .frame_log import LogEntry, append_entries, encode_entry, is_torn, read_entries
from .outbox import NEVER
from .site_checkpoint import STATE_FOLDER

SKIP = "skip"  # the agent itself takes no part in the exchange
OWN = -1  # key of the agent's own skips among the votes
HISTORY_FILE = "history"  # votes that no agent needs any more
REMEDY = "restore it from a copy, or start again at every site"


class DamagedJournal(ValueError):
    """Error: a journal differs from what was written; the message says which, and where."""


class VoteLog:
    """Votes by round, run-length encoded: rounds are settled in order, and mostly alike."""

    def __init__(self, runs: Iterable[tuple[int, str]] = (), end: int = 0):
        self.runs, self.end = [(int(t), str(vote)) for t, vote in runs], end

    def get(self, t: int) -> str:
        """Return the vote of round t; empty if there is none yet."""
        index = bisect_right(self.runs, t, key=lambda run: run[0]) - 1
        return self.runs[index][1] if t < self.end and index >= 0 else ""

    def next_change(self, t: int) -> int:
        """Return the first round after t with another vote than round t, or none yet."""
        after = bisect_right(self.runs, t, key=lambda run: run[0])
        return self.runs[after][0] if after < len(self.runs) else self.end

    def set_vote(self, t: int, vote: str) -> None:
        """Set the vote of round t; only a `YES` is ever replaced."""
        current = self.get(t)
        if current == vote:
            return
        if current not in ("", YES) or t < self.end - 1:
            raise ValueError(f"round {t} is {current or 'over'}, it cannot become {vote}")
        if current == YES:
            self.runs.pop()
        elif t > self.end:
            self.runs.append((self.end, ""))
        if not self.runs or self.runs[-1][1] != vote:
            self.runs.append((t, vote))
        self.end = t + 1

    def discard_before(self, before: int) -> list[tuple[int, int, str]]:
        """Discard rounds before `before`; return them as (first, end, vote)."""
        discarded = []
        while len(self.runs) > 1 and self.runs[1][0] <= before:
            first, vote = self.runs.pop(0)
            discarded.append((first, self.runs[0][0], vote))
        return discarded


class EdgeJournal:
    """Votes on all edges of one agent, kept in `folder` if given.

    With `keeps_history`, votes that are no longer needed move to a file instead of being dropped.
    """

    def __init__(
        self,
        neighbours: Iterable[int],
        run: str,
        folder: Path | None = None,
        keeps_history: bool = False,
    ):
        self.votes = {j: VoteLog() for j in (*neighbours, *[OWN] * keeps_history)}
        self.keeps_history = keeps_history
        self.messages: dict[tuple[int, int], Frame] = {}  # for repeating rounds
        self.run, self.folder = run, folder
        self._stream: BinaryIO | None = None

    def edge_vote(self, j: int, t: int) -> str:
        """Return the state of the edge to j in round t."""
        return self.votes[j].get(t)

    def write(
        self, j: int, t: int, vote: str, message: Frame = b"", until: int | None = None
    ) -> None:
        """Write the vote of round t, or of all rounds from t to before `until`.

        The vote is durable once this method returns.
        """
        rounds = range(t, t + 1 if until is None else until)
        self._append(b"".join(_encode_entry(self._header(j, s, vote), message) for s in rounds))
        for s in rounds:
            self.votes[j].set_vote(s, vote)

    def write_round(self, t: int, used: Mapping[int, tuple[str, Frame]]) -> None:
        """Write the version of each neighbour's message that round t uses, and the new messages.

        They are durable once this method returns.
        """
        entries = [_encode_entry(self._header(j, t, v), frame) for j, (v, frame) in used.items()]
        self._append(b"".join(entries))
        for j, (version, _) in used.items():
            self.votes[j].set_vote(t, version)

    def is_skipped(self, t: int) -> bool:
        """Return whether the agent skips exchange t."""
        return self.votes[OWN].get(t) == SKIP

    def skip_end(self, t: int) -> int:
        """Return the end of the skipped exchanges that include t."""
        return self.votes[OWN].next_change(t)

    def write_skip(self, first: int, end: int) -> None:
        """Write that the agent skips these exchanges, and that its edges are down in them."""
        entries = []
        for j in sorted(self.votes):  # first its own, if that is kept
            vote = SKIP if j == OWN else DOWN
            missing = range(max(first, self.votes[j].end), end)
            entries += [_encode_entry(self._header(j, t, vote), b"") for t in missing]
        self._append(b"".join(entries))
        for j, log in self.votes.items():
            for t in range(max(first, log.end), end):
                log.set_vote(t, SKIP if j == OWN else DOWN)

    def rotate(self, t: int, safe: int, needed: int) -> None:
        """Start a new file after the checkpoint of round t, and discard what is not needed.

        The agent itself is never set back before round `safe`, nor a neighbour before `needed`.
        """
        needed = min(safe, needed)
        discarded = {str(j): log.discard_before(needed) for j, log in self.votes.items()}
        if self.keeps_history and self.folder is not None and any(discarded.values()):
            entry = {"kind": "history", "run": self.run}
            self.folder.mkdir(parents=True, exist_ok=True)
            with (self.folder / HISTORY_FILE).open("ab") as stream:
                append_entries(stream, _encode_entry(entry, json.dumps(discarded).encode()))
        self.messages = {(j, s): m for (j, s), m in self.messages.items() if s >= t}
        if self.folder is None:
            return
        self.close()
        logs = {str(j): [log.runs, log.end] for j, log in self.votes.items()}
        head = _encode_entry({"kind": "all", "run": self.run}, json.dumps(logs).encode())
        head += b"".join(
            _encode_entry(self._header(j, s, self.edge_vote(j, s)), m)
            for (j, s), m in self.messages.items()
        )
        self._stream = _create_file(self.folder / f"{t:010d}.log", head)
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
            entries = _read_entries(path, last=path == paths[-1])
            with refuse_unreadable(DamagedJournal, f"{path} is damaged: {REMEDY}"):
                for entry in entries:
                    self._apply(entry.header, bytes(entry.content), t, first=number == 0)
        if paths:
            self._stream = paths[-1].open("ab")

    def read_history(self) -> dict[int, dict[int, str]]:
        """Return all votes of the run by neighbour and exchange, discarded ones included."""
        votes: dict[int, dict[int, str]] = {j: {} for j in self.votes}
        path = self.folder and self.folder / HISTORY_FILE
        entries = _read_entries(path, last=True) if path and path.exists() else []
        with refuse_unreadable(DamagedJournal, f"{path} is damaged: {REMEDY}"):
            of_run = [e.content for e in entries if e.header["run"] == self.run]
            for content in of_run:
                for j, runs in json.loads(bytes(content)).items():
                    votes[int(j)] |= {t: v for first, end, v in runs for t in range(first, end)}
        for j, log in self.votes.items():
            first = log.runs[0][0] if log.runs else log.end
            votes[j] |= {t: log.get(t) for t in range(first, log.end)}
        return votes

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
                logs = json.loads(content).items()
                self.votes = {int(j): VoteLog(runs, end) for j, (runs, end) in logs}
            return
        j, round = header["neighbour"], header["round"]
        if self.edge_vote(j, round) in ("", YES):
            self.votes[j].set_vote(round, header["kind"])
        if content and round >= t:
            self.messages[j, round] = content

    def _header(self, j: int, t: int, vote: str) -> dict[str, Any]:
        return {"kind": vote, "run": self.run, "neighbour": j, "round": t}

    def _append(self, entry: bytes) -> None:
        if self.folder is None:
            return
        if self._stream is None:
            self._stream = _create_file(self.folder / f"{0:010d}.log", b"")
        append_entries(self._stream, entry)


def _create_file(path: Path, head: bytes) -> BinaryIO:
    """Create a file with that head."""
    path.parent.mkdir(parents=True, exist_ok=True)
    checkpoint_file.replace_file(path, head)
    return path.open("ab")


def _encode_entry(header: dict[str, Any], content: Frame) -> bytes:
    return b"".join(encode_entry(wire_format.pack(header, content)))


def _read_entries(path: Path, last: bool) -> list[LogEntry]:
    """Read the entries of a file; an interrupted append at the end of the last file is dropped."""
    content, entries = path.read_bytes(), list[LogEntry]()
    try:
        for entry in read_entries(content):
            entries.append(entry)
    except FrameError:
        start = entries[-1].end if entries else 0
        if not last or not is_torn(content, start):
            raise DamagedJournal(
                f"{path} is damaged at byte {start}, and its records of the rounds after that "
                f"may have been acted on: {REMEDY}"
            ) from None
        os.truncate(path, start)
    return entries


def recorded_network(network: Network, folders: Sequence[Path], exchanges: int = 1) -> Network:
    """Return the network with which `diamond.simulate` repeats a run of sites with a deadline.

    Args:
        network: network of the sites.
        folders: run folders of all sites, in the order of the agents, after the run.
        exchanges: exchanges of a round of the method.

    Returns:
        The network whose links are down, and whose agents skip rounds, as in the run.
    """
    if len(folders) != network.agents:
        raise ValueError(f"{len(folders)} folders for {network.agents} agents; give one for each")
    votes = [_read_votes(network, i, Path(folder)) for i, folder in enumerate(folders)]
    rounds = min(len(log) for own in votes for j, log in own.items() if j != OWN) // exchanges
    down: list[set[tuple[int, int]]] = [set() for _ in range(rounds)]
    skipping: list[set[int]] = [set() for _ in range(rounds)]
    for t in range(rounds):
        span = range(t * exchanges, (t + 1) * exchanges)
        for i, own in enumerate(votes):
            if all(own[OWN].get(tick) == SKIP for tick in span):
                skipping[t].add(i)
        for i, j in network.edges:
            states = {votes[a][b].get(tick, "") for tick in span for a, b in ((i, j), (j, i))}
            if states == {DOWN}:
                down[t].add((i, j))
            elif states != {UP}:
                raise ValueError(
                    f"the link of agents {i} and {j} in round {t} is recorded as "
                    f"{' and '.join(sorted(filter(None, states))) or 'nothing'}: only runs with a "
                    f"deadline whose links keep their state for a whole round can be replayed"
                )
    return interrupted(network, [sorted(links) for links in down], skipping)


def recorded_versions(network: Network, folders: Sequence[Path]) -> list[list[dict[int, int]]]:
    """Return the messages that each site has used in asynchronous rounds, for `engine.site_replay`.

    Args:
        network: network of the sites.
        folders: run folders of all sites, in the order of the agents, after the run.

    Returns:
        By site and round, the round in which each neighbour made the message that was used.
    """
    versions = []
    for i, folder in enumerate(folders):
        votes = _read_votes(network, i, Path(folder))
        del votes[OWN]
        rounds = range(min((len(log) for log in votes.values()), default=0))
        with refuse_unreadable(DamagedJournal, f"{folder} has no versions of messages: {REMEDY}"):
            versions.append([{j: int(log[t]) for j, log in votes.items()} for t in rounds])
    return versions


def _read_votes(network: Network, agent: int, folder: Path) -> dict[int, dict[int, str]]:
    """Return all votes of one site by neighbour and exchange."""
    saved = checkpoint_file.saved_rounds(folder / STATE_FOLDER)
    if not saved:
        raise ValueError(f"{folder} has no checkpoint: give the run folder of agent {agent}")
    run = checkpoint_file.load(folder / STATE_FOLDER, saved[-1]).notes["run"]
    neighbours = [j for j in network.weights[[agent]].indices.tolist() if j != agent]
    journal = EdgeJournal(neighbours, run, folder / "journal", keeps_history=True)
    journal.restore(NEVER)
    journal.close()
    votes = journal.read_history()
    return {OWN: {}} | votes
