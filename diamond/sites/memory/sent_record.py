"""Record of what a site has sent, so that it never sends two messages of one exchange.

A site that was killed computes its messages again and sends the same bits. If it computed other
ones (other rows, another machine, a run folder from a backup), neighbours would hold different
messages of one exchange. With signatures both prove that the site lies; with masks, who has both
learns their difference. So the site stops instead.

The record lies beside the site's key, so that it does not go back with the run folder. An entry is
written before its message is sent, and survives the death of the process. What the record lacks
after a power cut, or if the bundle was restored too, neighbours add when the site greets them
(`outbox`). `--restart` and `--onward` forget the messages of a run, since all sites start again;
those of a signing key or of a mask are never forgotten.
"""

import errno
import hashlib
import os
import struct
import weakref
from collections.abc import Callable
from pathlib import Path

import numpy as np
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from ...records.checkpoint_file import replace_file
from ...records.write_check import detect_full_disk
from ..transport.wire_format import Frame
from .site_checkpoint import OtherRun

RECORD_FILE = "sent.record"
DIGEST_BYTES = 32
ENTRY = np.dtype(
    [("scope", "V16"), ("exchange", "<u4"), ("step", "<u4"), ("digest", f"V{DIGEST_BYTES}")]
)
PACKED = struct.Struct(f"<16sII{DIGEST_BYTES}s")  # the same, of one entry
WINDOW = 1000  # exchanges before the newest whose entries are in memory
TAG_BYTES, CHUNK_BYTES = 16, 2**30
Key = tuple[bytes, int, int]  # scope, exchange, consensus step


class SentBefore(OtherRun):
    """Error: the site has sent another message of this exchange."""


class SentRecord:
    """Record of the messages of one run in a file; without a file it is in memory only.

    `remedy` is what the operator can do if the messages cannot be computed again.
    """

    def __init__(self, path: Path | None, run: str, remedy: str):
        self.path, self.run, self.remedy = path, run, remedy
        self._digests: dict[Key, bytes] = {}
        self._reports: dict[tuple[int, int], dict[str, bytes]] = {}  # by exchange and neighbour
        self._newest = -1  # exchange
        self._descriptor: int | None = None

    def open(self, first: int = 0) -> None:
        """Load what was sent from exchange `first` on."""
        if self.path is None:
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        entries = _read_entries(self.path)
        self._descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        weakref.finalize(self, os.close, self._descriptor)
        os.truncate(self._descriptor, entries.nbytes)  # the rest was never sent
        entries = entries[entries["exchange"] >= first]
        entries = entries[np.argsort(entries["exchange"], kind="stable")]
        self._digests = {(scope, t, step): digest for scope, t, step, digest in entries.tolist()}

    @property
    def next_exchange(self) -> int:
        """Return the first exchange after all those whose messages were sent."""
        own = _scope(b"\0", self.run)
        sent = (t for scope, t, step in self._digests if scope == own and not step)
        return max(sent, default=-1) + 1

    def add_report(self, neighbour: str, exchange: int, step: int, digest: bytes) -> None:
        """Add that a neighbour holds a message with this digest; what the record has is known."""
        if exchange > self._newest:
            self._reports.setdefault((exchange, step), {})[neighbour] = _pad(digest)

    def record(
        self,
        exchange: int,
        step: int,
        digest: bytes,
        round: int,
        secret: str = "",
        digest_for: Callable[[str], bytes] | None = None,
    ) -> None:
        """Record a message before it is sent; raise `SentBefore` if another one was.

        `secret` names the signing key or mask that must not serve for two messages. `digest_for`
        returns the digest of what a neighbour receives, if each receives something else.
        """
        digest = _pad(digest)
        reports = self._reports.pop((exchange, step), {})
        scopes = [_scope(b"\0", self.run)]
        scopes += [_scope(b"\1", f"{self.run} {secret}")] * bool(secret)
        if (scopes[0], exchange, step) not in self._digests:
            for neighbour, held in reports.items():
                if held != (digest if digest_for is None else _pad(digest_for(neighbour))):
                    raise self._conflict(round, f"{neighbour} holds it")
        for key in ((scope, exchange, step) for scope in scopes):
            known = self._digests.setdefault(key, digest)
            if known != digest:
                raise self._conflict(round, f"{self.path} has its digest")
            if known is digest and self._descriptor is not None:
                self._append(PACKED.pack(*key, digest))
        self._newest = max(self._newest, exchange)
        while next(iter(self._digests))[1] < self._newest - WINDOW:
            del self._digests[next(iter(self._digests))]

    def _append(self, entry: bytes) -> None:
        """Append an entry completely, or raise: the next start drops an incomplete one."""
        assert self._descriptor is not None and self.path is not None
        with detect_full_disk(self.path):
            if os.write(self._descriptor, entry) < len(entry):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def _conflict(self, round: int, holder: str) -> SentBefore:
        return SentBefore(
            f"this site has sent another message of round {round} of this run ({holder}), and its "
            f"run folder now leads to a different one, which is not sent: restore the newest run "
            f"folder, with the same rows and machine, or {self.remedy}"
        )


def record_path(bundle: Path, folder: Path) -> Path:
    """Return the file of the record: beside the key, or beside the run folder.

    A bundle may be mounted read-only.
    """
    is_writable = os.access(bundle, os.W_OK)
    return bundle / RECORD_FILE if is_writable else folder.with_name(f"{folder.name}.{RECORD_FILE}")


def forget_run(path: Path) -> None:
    """Forget the messages of runs that are set aside, but not what was signed or masked."""
    entries = _read_entries(path)
    if len(entries):
        is_kept = [scope[:1] != b"\0" for scope in entries["scope"].tolist()]
        replace_file(path, entries[is_kept].tobytes())


def frame_tag(frame: Frame) -> bytes:
    """Return a 128-bit tag that tells frames apart (GMAC by a public key: no signature)."""
    tag, view = b"", memoryview(frame)
    for start in range(0, len(view), CHUNK_BYTES):
        chunk = view[start : start + CHUNK_BYTES]
        tag = AESGCM(bytes(16)).encrypt(bytes(12), tag, chunk)[-TAG_BYTES:]
    return tag


def _read_entries(path: Path) -> np.ndarray:
    content = path.read_bytes() if path.exists() else b""
    return np.frombuffer(content, ENTRY, len(content) // ENTRY.itemsize)


def _scope(kind: bytes, name: str) -> bytes:
    """Return the bytes that identify messages which must not differ; `kind` 1: for ever."""
    return kind + hashlib.sha256(name.encode()).digest()[:15]


def _pad(digest: bytes) -> bytes:
    return digest.ljust(DIGEST_BYTES, b"\0")
