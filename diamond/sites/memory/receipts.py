"""Receipts: digests of the messages that a site has received, by which their senders start again.

A site keeps the receipt of a message for as long as its sender may be set back before it, in
memory and in its own checkpoint. A site that starts asks its neighbours for the receipts of its
messages from its checkpoint on: it sends none that differs (`sent_record`). If messages are signed,
a receipt has the sender's signature, so that no neighbour can invent one.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple

import msgpack
import numpy as np

from ..transport.messages import check_place
from ..transport.wire_format import FrameError
from ..trust.signed_records import DIGEST_BYTES, MAX_SIGNATURE_BYTES

PAGE = 300  # receipts in one answer
Place = tuple[int, int]  # exchange and consensus step


class Receipt(NamedTuple):
    """Digest of a received message; `version` and `signature` if it is signed."""

    exchange: int
    consensus_step: int
    digest: bytes
    version: int = 0
    signature: bytes = b""

    @property
    def place(self) -> Place:
        """Return what identifies the message."""
        return self.exchange, self.consensus_step


class Receipts:
    """Receipts of the messages of each neighbour."""

    def __init__(self, neighbours: Iterable[int]):
        self._received: dict[int, dict[Place, Receipt]] = {j: {} for j in neighbours}

    def record(self, j: int, receipt: Receipt) -> None:
        """Record that a message of neighbour j was received."""
        self._received[j][receipt.place] = receipt

    def page(self, j: int, first: Place) -> tuple[list[Receipt], bool]:
        """Return some receipts of j's messages from `first` on, and whether there are more."""
        later = sorted(receipt for receipt in self._received[j].values() if receipt.place >= first)
        return later[:PAGE], len(later) > PAGE

    def drop_before(self, j: int, tick: int) -> None:
        """Drop the receipts of exchanges before which j is never set back."""
        received = self._received[j]
        self._received[j] = {place: r for place, r in received.items() if r.exchange >= tick}

    def to_array(self) -> np.ndarray:
        """Return all receipts as bytes, for a checkpoint."""
        document = {j: list(received.values()) for j, received in self._received.items()}
        return np.frombuffer(msgpack.packb(document), np.uint8)

    def restore(self, content: np.ndarray) -> None:
        """Restore the receipts of a checkpoint."""
        document = msgpack.unpackb(content.tobytes(), strict_map_key=False)
        for j, fields in document.items():
            receipts = (Receipt(*each) for each in fields)
            self._received[j] = {receipt.place: receipt for receipt in receipts}

    def copy(self) -> "Receipts":
        """Return a copy for a checkpoint that is written while rounds continue."""
        copy = Receipts(())
        copy._received = {j: dict(received) for j, received in self._received.items()}
        return copy


def read_receipts(entries: Any, first: Place) -> list[Receipt]:
    """Read the receipts in an answer of a neighbour; raises `FrameError`."""
    if not isinstance(entries, list) or any(
        not isinstance(e, list) or len(e) != len(Receipt._fields) for e in entries
    ):
        raise FrameError("a greeting whose receipts cannot be read")
    receipts = [Receipt(*entry) for entry in entries[:PAGE]]
    for receipt in receipts:
        check_place(receipt.place)
        if (
            type(receipt.version) is not int
            or not isinstance(receipt.digest, bytes)
            or not isinstance(receipt.signature, bytes)
            or len(receipt.digest) > DIGEST_BYTES
            or len(receipt.signature) > MAX_SIGNATURE_BYTES
            or receipt.place < first
        ):
            raise FrameError("a greeting with a receipt that cannot be read")
    return receipts
