"""Record of what a site has signed, so that it never signs two messages for one exchange.

A site that was killed computes its messages again and signs the same digests. If it computed other
ones (other rows, another machine, a restart), anybody could accuse it with both signatures; so it
stops instead. An entry is written before its message is sent, and survives the death of the
process. `--restart` and `--onward` keep the record.
"""

import os
import shutil
import struct
import weakref
from pathlib import Path
from typing import TYPE_CHECKING

from .site_checkpoint import OtherRun

if TYPE_CHECKING:
    from .signed_statement import Statement

RECORD_FILE = "signed.record"
ENTRY = struct.Struct("<16sQII32s")  # run, roster version, exchange, consensus step, digest
Entry = tuple[bytes, int, int, int]


class SignedBefore(OtherRun):
    """Error: the site has signed another message for this exchange."""


class SigningRecord:
    """Record in the folder of a run; without a folder it is in memory only."""

    def __init__(self, folder: Path | None):
        self._digests: dict[Entry, bytes] = {}
        self._descriptor: int | None = None
        if folder is None:
            return
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / RECORD_FILE
        content = path.read_bytes() if path.exists() else b""
        whole = len(content) // ENTRY.size * ENTRY.size  # the rest was never sent
        for *entry, digest in ENTRY.iter_unpack(content[:whole]):
            self._digests[tuple(entry)] = digest
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        weakref.finalize(self, os.close, self._descriptor)
        os.truncate(self._descriptor, whole)

    def record(self, statement: "Statement", round: int) -> None:
        """Record a statement before it is sent; raise `SignedBefore` if another one was."""
        run, place = bytes.fromhex(statement.run)[:16], (statement.exchange,)
        entry = run, statement.version, *place, statement.consensus_step
        digest = self._digests.get(entry)
        if digest == statement.digest:
            return
        if digest is not None:
            raise SignedBefore(
                f"this site has signed another message of round {round} of this run, and both "
                f"together would prove that it lies: it is not sent; continue with the same rows "
                f"on the same machine, or renew its keys (`diamond net renew`) and start all sites "
                f"with --restart"
            )
        self._digests[entry] = statement.digest
        if self._descriptor is not None:
            os.write(self._descriptor, ENTRY.pack(*entry, statement.digest))


def carry_record(old: Path, new: Path) -> None:
    """Copy the record of a run that is set aside into the folder of its successor."""
    if (old / RECORD_FILE).exists():
        new.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(old / RECORD_FILE, new / RECORD_FILE)
