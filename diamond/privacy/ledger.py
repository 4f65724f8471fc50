"""Ledger of a site: the privacy that its messages have spent, on the disk before they are sent.

`privacy.jsonl` lies beside the site's key, so that all runs of the site are in one ledger, whatever
their folders. It has a first line from `net init`, one line per run with the mechanism, and one
line per message with its round, the epsilon of everything up to it, and a digest. Every line
contains the hash of all lines up to it. A line is synced before its message is sent, so that the
ledger is never below what was sent, whenever the process is killed. The same message costs nothing
when it is sent again; another message in its place is refused, since the difference of two messages
with the same noise has no noise.

A ledger only grows: `privacy.head` beside it and a copy in the folder of the run have its last line
or one shortly before it, and a ledger without that line is refused. `net init` writes the first
line as `privacy.genesis`, which becomes the ledger at the first start. A ledger that is missing
later is thus no first start, and bundles that are copied again overwrite no ledger.
"""

import hashlib
import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from .accountant import Mechanism, Release, Spending, spent_epsilon

LEDGER_FILE, KEY_FILE = "privacy.jsonl", "privacy.key"
GENESIS_FILE, HEAD_FILE = "privacy.genesis", "privacy.head"
HEAD_BYTES = 128  # of `privacy.head`, which is overwritten in place
KEY_BYTES = 16
REMEDY = (
    "restore it from its newest copy (the folder of each run has one, privacy.jsonl). If there is "
    "none, what was spent is not known: the rows may be used in a new federation only, with the "
    "budget that they may reveal in addition"
)


class BudgetExhausted(RuntimeError):
    """Error: the next message would spend more than the budget."""


class LedgerMismatch(ValueError):
    """Error: the ledger cannot be read, or belongs to other messages."""


class LedgerTerms(NamedTuple):
    """Budget of a site, the mechanism that spends it, and the run that does."""

    epsilon: float
    delta: float
    mechanism: Mechanism
    run: str  # digest of the run's key of noise


class LedgerHead(NamedTuple):
    """Number of lines of a ledger, and the hash in the last of them."""

    lines: int
    chain: str


@dataclass
class RunSpending:
    """Messages of one run with one mechanism."""

    mechanism: Mechanism
    digests: dict[int, str] = field(default_factory=dict)  # by number of the message
    rounds: int = 0  # with a message

    def add(self, number: int, round: int, digest: str) -> None:
        """Add message `number`, of that round."""
        self.digests[number], self.rounds = digest, max(round + 1, self.rounds)


class LedgerFiles:
    """The ledger, its copy in the folder of the run, and the end of both."""

    def __init__(self, path: Path, copy: Path | None, head: LedgerHead):
        self.path, self.copy, self.head = path, copy, head

    def append(self, entry: dict[str, Any]) -> None:
        """Append a line, on the disk when this function returns; then to the copy and the head.

        The head is overwritten in place: a power cut leaves this one or an earlier one.
        """
        line, self.head = _chained(entry, self.head)
        with open(self.path, "ab") as file:
            file.write(line)
            file.flush()
            os.fsync(file.fileno())
        if self.copy is not None:
            with open(self.copy, "ab") as file:
                file.write(line)
        descriptor = os.open(self.path.with_name(HEAD_FILE), os.O_WRONLY | os.O_CREAT, 0o600)
        os.pwrite(descriptor, json.dumps(self.head._asdict()).ljust(HEAD_BYTES).encode(), 0)
        os.close(descriptor)


@dataclass
class PrivacyLedger:
    """Spent privacy of one site; without files it is in memory only."""

    terms: LedgerTerms
    run: RunSpending
    earlier: tuple[Spending, ...] = ()  # of other runs
    files: LedgerFiles | None = None
    epsilons: dict[int, float] = field(default_factory=dict)  # by number of rounds

    @property
    def rounds(self) -> int:
        """Rounds of this run with a message."""
        return self.run.rounds

    @property
    def spent(self) -> float:
        """Epsilon of everything that was sent, earlier runs included."""
        return self.epsilon_at(self.rounds)

    def epsilon_at(self, rounds: int) -> float:
        """Return epsilon after `rounds` rounds of this run, earlier runs included."""
        if rounds not in self.epsilons:
            spendings = [*self.earlier, Spending(self.terms.mechanism, rounds)]
            self.epsilons[rounds] = spent_epsilon(spendings, self.terms.delta)
        return self.epsilons[rounds]

    def record(self, number: int, round: int, arrays: Sequence[np.ndarray]) -> None:
        """Record message `number`, of that round, before it is sent.

        Raises BudgetExhausted if the budget does not have it, LedgerMismatch if another message
        was recorded in its place.
        """
        digest = digest_arrays(arrays)
        if number in self.run.digests:
            if self.run.digests[number] != digest:
                raise LedgerMismatch(
                    f"the message of round {round} is not the one that was sent before the "
                    f"restart, and both have the same noise: it is not sent; start all sites with "
                    f"--restart, which spends privacy again"
                )
            return
        epsilon = self.check_budget(round)
        if self.files is not None:
            entry = {"message": number, "round": round, "epsilon": epsilon, "digest": digest}
            self.files.append(entry)
        self.run.add(number, round, digest)

    def check_budget(self, round: int) -> float:
        """Return epsilon after a message of that round; raise BudgetExhausted if it is too much."""
        epsilon = self.epsilon_at(max(round + 1, self.rounds))
        if epsilon > self.terms.epsilon:
            outcome = (
                "the site stops here, and its last x is the result"
                if self.rounds
                else "this run sends nothing, and these rows need a federation with another budget"
            )
            raise BudgetExhausted(
                f"round {round} would spend epsilon = {epsilon:.4g} of the budget of "
                f"{self.terms.epsilon:g} (delta {self.terms.delta:g}); {self.spent:.4g} is spent"
                f"{', earlier runs included' * bool(self.earlier)}: {outcome}"
            )
        return epsilon

    def summary(self) -> dict[str, Any]:
        """Return the budget and what is spent of it, as plain data."""
        return {
            "epsilon": self.terms.epsilon,
            "delta": self.terms.delta,
            "spent": self.spent,
            "rounds": self.rounds,
            "noise_multiplier": self.terms.mechanism.multiplier,
            "earlier_rounds": sum(spending.rounds for spending in self.earlier),
        }


def digest_arrays(arrays: Iterable[np.ndarray]) -> str:
    """Return the digest of the arrays of a message."""
    digest = hashlib.sha256()
    for array in map(np.asarray, arrays):
        digest.update(f"{array.dtype}{array.shape}".encode() + array.tobytes())
    return digest.hexdigest()


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_genesis(folder: Path, federation: str, site: str) -> None:
    """Write the first line of a ledger into a bundle; the site's first start makes it a ledger."""
    line, _ = _chained({"federation": federation, "site": site}, LedgerHead(0, ""))
    (folder / GENESIS_FILE).write_bytes(line)


def open_ledger(folder: Path | None, run_folder: Path | None, terms: LedgerTerms) -> PrivacyLedger:
    """Open the ledger in `folder`, beside the site's key; without a folder, one in memory.

    Raises LedgerMismatch if the ledger is missing, damaged, or shorter than it was, and
    BudgetExhausted if nothing is left for the first round of a run.
    """
    if folder is None:
        return PrivacyLedger(terms, RunSpending(terms.mechanism))
    path, copy = folder / LEDGER_FILE, None
    heads = _read_head(folder / HEAD_FILE)
    if run_folder is not None:
        run_folder.mkdir(parents=True, exist_ok=True)
        copy = run_folder / LEDGER_FILE
        seen = _read_chain(copy.read_bytes())[1] if copy.exists() else LedgerHead(0, "")
        heads |= {copy: seen} if seen.lines else {}
    if not path.exists():
        _start_ledger(folder, heads)
    data = path.read_bytes()
    entries, head, size = _read_chain(data)
    if not head.lines or data.find(b"\n", size) >= 0:
        raise LedgerMismatch(
            f"{path} is damaged in line {head.lines + 1}, so that what was spent is not known: "
            f"{REMEDY}"
        )
    for source, seen in heads.items():
        if seen not in _heads(entries):
            raise LedgerMismatch(
                f"{path} has {head.lines} lines, and not line {seen.lines} of {source}: it is "
                f"another ledger or an older copy, which does not have all that was spent; "
                f"{REMEDY}, whose first run starts with --restart"
            )
    runs = _read_runs(path, entries)
    if any(k[0] == terms.run and k[1] != terms.mechanism and runs[k].rounds for k in runs):
        raise LedgerMismatch(
            f"{path} has this run with another mechanism (rows, batch, clipping, rounds or budget "
            f"have changed): start all sites with --restart, which spends privacy again"
        )
    os.truncate(path, size)  # an unfinished last line was never sent
    if copy is not None:
        copy.write_bytes(data[:size])
    files, key = LedgerFiles(path, copy, head), (terms.run, terms.mechanism)
    if not runs or next(reversed(runs)) != key:
        budget = {"epsilon": terms.epsilon, "delta": terms.delta}
        files.append({"run": terms.run, **budget, "mechanism": _mechanism_json(terms.mechanism)})
    run = runs.pop(key, RunSpending(terms.mechanism))
    earlier = tuple(
        Spending(other.mechanism, other.rounds) for other in runs.values() if other.rounds
    )
    ledger = PrivacyLedger(terms, run, earlier, files)
    if not run.rounds:
        ledger.check_budget(0)
    return ledger


def check_earlier_run(folder: Path, run_folder: Path) -> None:
    """Reject a run whose last x would be sent, unless the ledger in `folder` has its messages."""
    path, copy = folder / LEDGER_FILE, run_folder / LEDGER_FILE
    if not run_folder.exists():
        return
    entries = _read_chain(path.read_bytes())[0] if path.exists() else []
    head = _read_chain(copy.read_bytes())[1] if copy.exists() else None
    if head not in _heads(entries):
        raise LedgerMismatch(
            f"the run in {run_folder} is not in {path}, and its last x would be sent without "
            f"noise: start all sites with --restart"
        )


def _heads(entries: Sequence[dict[str, Any]]) -> list[LedgerHead]:
    """Return the head after each line."""
    return [LedgerHead(lines, entry["chain"]) for lines, entry in enumerate(entries, 1)]


def _start_ledger(folder: Path, sources: Iterable[Path]) -> None:
    """Make the first line a ledger, unless `sources` show that there was one."""
    path, genesis = folder / LEDGER_FILE, folder / GENESIS_FILE
    if source := next(iter(sources), None):
        raise LedgerMismatch(f"{path} is missing, which {source} has seen: {REMEDY}")
    if not genesis.exists():
        raise LedgerMismatch(
            f"{path} is missing, so that what this site has spent is not known: {REMEDY}. Only a "
            f"site that has never sent a message may take {GENESIS_FILE} from the folder of "
            f"`diamond net init`; `diamond net renew` writes it for older federations"
        )
    os.replace(genesis, path)
    _sync_folder(folder)


def read_or_create_key(folder: Path) -> np.ndarray:
    """Return the four words of the run's key of noise; create it before the first message.

    The key is random and never leaves the folder: who knows it can subtract the noise.
    """
    path = folder / KEY_FILE
    if not path.exists():
        if (folder / LEDGER_FILE).exists():
            raise LedgerMismatch(
                f"{path} is missing, without which the same messages cannot be made again: restore "
                f"it, or start all sites with --restart, which spends privacy again"
            )
        folder.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(".tmp")
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(os.urandom(KEY_BYTES))
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
        _sync_folder(folder)
    data = path.read_bytes()
    if len(data) != KEY_BYTES:
        raise LedgerMismatch(f"{path} has {len(data)} bytes, not {KEY_BYTES}: restore it")
    return np.frombuffer(data, np.uint32)


def _chained(entry: dict[str, Any], head: LedgerHead) -> tuple[bytes, LedgerHead]:
    """Return the line of an entry after `head`, and the head after the line."""
    chain = hashlib.sha256((head.chain + json.dumps(entry)).encode()).hexdigest()
    line = json.dumps(entry | {"chain": chain}).encode() + b"\n"
    return line, LedgerHead(head.lines + 1, chain)


def _read_chain(data: bytes) -> tuple[list[dict[str, Any]], LedgerHead, int]:
    """Return the lines up to the first that does not follow, their head, and their size."""
    entries: list[dict[str, Any]] = []
    head, size = LedgerHead(0, ""), 0
    for line in data.splitlines(keepends=True):
        try:
            entry = json.loads(line)
            expected, following = _chained({k: entry[k] for k in entry if k != "chain"}, head)
        except (ValueError, TypeError):
            break
        if line != expected:
            break
        entries.append(entry)
        head, size = following, size + len(line)
    return entries, head, size


def _read_head(path: Path) -> dict[Path, LedgerHead]:
    """Return the head in a file by the file, if there is one."""
    content = path.read_bytes().strip(b"\0 ") if path.exists() else b""
    if not content:  # a power cut right after the first line leaves an empty file
        return {}
    try:
        return {path: LedgerHead(**json.loads(content))}
    except (ValueError, TypeError) as cause:
        raise LedgerMismatch(
            f"{path} is damaged ({cause}): remove it if {LEDGER_FILE} beside it is complete"
        ) from None


def _read_runs(
    path: Path, entries: Sequence[dict[str, Any]]
) -> dict[tuple[str, Mechanism], RunSpending]:
    """Return what each run has spent with each mechanism, that of the last line at the end."""
    runs: dict[tuple[str, Mechanism], RunSpending] = {}
    try:
        for entry in entries[1:]:
            if "run" in entry:
                key = str(entry["run"]), _read_mechanism(entry["mechanism"])
                runs[key] = runs.pop(key, RunSpending(key[1]))
            else:
                last = runs[next(reversed(runs))]
                last.add(int(entry["message"]), int(entry["round"]), str(entry["digest"]))
    except (ValueError, KeyError, TypeError, StopIteration) as cause:
        raise LedgerMismatch(f"{path} is damaged ({cause!r}): {REMEDY}") from None
    return runs


def _mechanism_json(mechanism: Mechanism) -> dict[str, Any]:
    return {"multiplier": mechanism.multiplier, "releases": [list(r) for r in mechanism.releases]}


def _read_mechanism(document: dict[str, Any]) -> Mechanism:
    releases = tuple(Release(float(rate), int(k)) for rate, k in document["releases"])
    return Mechanism(float(document["multiplier"]), releases)
