"""Ledger of a site: the privacy that its messages have spent, on the disk before they are sent.

`privacy.jsonl` has a line with the mechanism and earlier runs, then one line per message with its
round, the epsilon of all rounds up to it, and a digest. A line is synced before its message is
sent, so that the ledger is never below what was sent, whenever the process is killed. The same
message costs nothing when it is sent again; another message in its place is refused, since the
difference of two messages with the same noise has no noise.
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
KEY_BYTES = 16


class BudgetExhausted(RuntimeError):
    """Error: the next message would spend more than the budget."""


class LedgerMismatch(ValueError):
    """Error: the ledger cannot be read, or belongs to other messages."""


class LedgerTerms(NamedTuple):
    """Budget of a site, and the mechanism that spends it."""

    epsilon: float
    delta: float
    mechanism: Mechanism


@dataclass
class PrivacyLedger:
    """Spent privacy of one site; without a folder it is in memory only."""

    terms: LedgerTerms
    folder: Path | None = None
    earlier: tuple[Spending, ...] = ()  # of runs that were set aside
    digests: dict[int, str] = field(default_factory=dict)  # by number of the message
    rounds: int = 0  # with a message
    epsilons: dict[int, float] = field(default_factory=dict)  # by number of rounds

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
        if number in self.digests:
            if self.digests[number] != digest:
                raise LedgerMismatch(
                    f"the message of round {round} is not the one that was sent before the "
                    f"restart, and both have the same noise: it is not sent; start all sites with "
                    f"--restart, which spends privacy again"
                )
            return
        epsilon = self.epsilon_at(max(round + 1, self.rounds))
        if epsilon > self.terms.epsilon:
            raise BudgetExhausted(
                f"round {round} would spend epsilon = {epsilon:.4g} of the budget of "
                f"{self.terms.epsilon:g} (delta {self.terms.delta:g}); {self.spent:.4g} is spent: "
                f"the site stops here, and its last x is the result"
            )
        entry = {"message": number, "round": round, "epsilon": epsilon, "digest": digest}
        if self.folder is not None:
            append_synced(self.folder / LEDGER_FILE, entry)
        self.digests[number], self.rounds = digest, max(round + 1, self.rounds)

    def summary(self) -> dict[str, Any]:
        """Return the budget and what is spent of it, as plain data."""
        mechanism = self.terms.mechanism
        return {
            "epsilon": self.terms.epsilon,
            "delta": self.terms.delta,
            "spent": self.spent,
            "rounds": self.rounds,
            "noise_multiplier": mechanism.multiplier,
            "earlier_rounds": sum(spending.rounds for spending in self.earlier),
        }


def digest_arrays(arrays: Iterable[np.ndarray]) -> str:
    """Return the digest of the arrays of a message."""
    digest = hashlib.sha256()
    for array in map(np.asarray, arrays):
        digest.update(f"{array.dtype}{array.shape}".encode() + array.tobytes())
    return digest.hexdigest()


def append_synced(path: Path, entry: dict[str, Any]) -> None:
    """Append a line to a file, on the disk when this function returns."""
    is_new = not path.exists()
    with open(path, "ab") as file:
        file.write(json.dumps(entry).encode() + b"\n")
        file.flush()
        os.fsync(file.fileno())
    if is_new:
        _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def open_ledger(folder: Path | None, terms: LedgerTerms) -> PrivacyLedger:
    """Open the ledger of a run folder, or start one; an unfinished last line was never sent."""
    if folder is None:
        return PrivacyLedger(terms)
    path = folder / LEDGER_FILE
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        append_synced(path, _header(terms, ()))
        return PrivacyLedger(terms, folder)
    header, entries = _read_lines(path)
    if header.get("mechanism") != _mechanism_json(terms.mechanism):
        if entries:
            raise LedgerMismatch(
                f"{path} is of another mechanism (rows, batch, clipping, rounds or budget have "
                f"changed): start all sites with --restart, which spends privacy again"
            )
        earlier, part = _read_earlier(header), path.with_suffix(".tmp")
        part.unlink(missing_ok=True)
        append_synced(part, _header(terms, earlier))
        os.replace(part, path)
        _sync_folder(folder)
        return PrivacyLedger(terms, folder, earlier)
    digests = {entry["message"]: entry["digest"] for entry in entries}
    rounds = max((entry["round"] + 1 for entry in entries), default=0)
    return PrivacyLedger(terms, folder, _read_earlier(header), digests, rounds)


def carry_over(old_folder: Path, folder: Path) -> None:
    """Start the ledger of a new run with what the run in `old_folder` has spent."""
    path = old_folder / LEDGER_FILE
    if not path.exists():
        return
    header, entries = _read_lines(path)
    rounds = max((entry["round"] + 1 for entry in entries), default=0)
    spendings = _read_earlier(header)
    if rounds:
        spendings = (*spendings, Spending(_read_mechanism(header["mechanism"]), rounds))
    folder.mkdir(parents=True, exist_ok=True)
    append_synced(folder / LEDGER_FILE, {"mechanism": None, "earlier": _earlier_json(spendings)})


def read_or_create_key(folder: Path) -> np.ndarray:
    """Return the four words of the site's key of noise; create it before the first message.

    The key is random and never leaves the folder: who knows it can subtract the noise.
    """
    path = folder / KEY_FILE
    if not path.exists():
        if (folder / LEDGER_FILE).exists() and _read_lines(folder / LEDGER_FILE)[1]:
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


def _read_lines(path: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return the header and the messages; remove an unfinished last line."""
    data = path.read_bytes()
    complete = data[: data.rfind(b"\n") + 1]
    try:
        lines = [json.loads(line) for line in complete.splitlines()]
        header, entries = lines[0], lines[1:]
        for entry in entries:
            entry["message"], entry["round"], entry["digest"]
        _read_earlier(header)
    except (ValueError, KeyError, TypeError, IndexError) as cause:
        raise LedgerMismatch(
            f"{path} is damaged ({cause}), so that what was spent is not known: restore it from a "
            f"copy"
        ) from None
    if len(complete) < len(data):
        with open(path, "rb+") as file:
            file.truncate(len(complete))
            os.fsync(file.fileno())
    return header, entries


def _header(terms: LedgerTerms, earlier: Sequence[Spending]) -> dict[str, Any]:
    return {
        "epsilon": terms.epsilon,
        "delta": terms.delta,
        "mechanism": _mechanism_json(terms.mechanism),
        "earlier": _earlier_json(earlier),
    }


def _mechanism_json(mechanism: Mechanism) -> dict[str, Any]:
    return {"multiplier": mechanism.multiplier, "releases": [list(r) for r in mechanism.releases]}


def _read_mechanism(document: dict[str, Any]) -> Mechanism:
    releases = tuple(Release(float(rate), int(k)) for rate, k in document["releases"])
    return Mechanism(float(document["multiplier"]), releases)


def _earlier_json(spendings: Sequence[Spending]) -> list[dict[str, Any]]:
    return [{**_mechanism_json(s.mechanism), "rounds": s.rounds} for s in spendings]


def _read_earlier(header: dict[str, Any]) -> tuple[Spending, ...]:
    return tuple(Spending(_read_mechanism(d), int(d["rounds"])) for d in header["earlier"])
