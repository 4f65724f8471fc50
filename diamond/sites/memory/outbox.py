"""Outbox: messages of an agent that a neighbour may still request; and receipts of messages.

Receipts are digests of the messages that a site has received, by which their senders start again. A
site keeps the receipt of a message for as long as its sender may be set back before it, in memory
and in its own checkpoint. A site that starts asks its neighbours for the receipts of its messages
from its checkpoint on: it sends none that differs (`sent_record`). If messages are signed, a
receipt has the sender's signature, so that no neighbour can invent one.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

import msgpack
import numpy as np

from ..transport.messages import check_place
from ..transport.wire_format import Frame, FrameError
from ..trust.signed_records import DIGEST_BYTES, MAX_SIGNATURE_BYTES
from .message_store import MessageKey, StoredMessage

NEVER = 2**31  # beyond any run
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


class MessageDiscarded(LookupError):
    """Error: a request for a message that was discarded because nobody should need it."""


class Outbox:
    """Frames by round, each kept exactly as long as a neighbour may request it.

    A neighbour that could be set back to its checkpoint of round d requests the messages from round
    d on again, so messages before the smallest d of all neighbours are dropped. So are messages
    that a neighbour will never request by `is_unneeded`: the edge was down in that round.
    """

    keeps_latest = False  # whether neighbours want the newest message only

    def __init__(
        self,
        neighbours: Iterable[int],
        is_unneeded: Callable[[int, int], bool] = lambda j, t: False,
    ):
        self.durable, self.is_unneeded = dict.fromkeys(neighbours, 0), is_unneeded
        self.frames: dict[MessageKey, Frame | StoredMessage] = {}
        self._reads: WeakValueDictionary[StoredMessage, np.ndarray] = WeakValueDictionary()
        self.complete_from = 0  # first round whose messages are all on the disk
        self.receipts = Receipts(self.durable)  # of the neighbours' messages

    @property
    def first_round(self) -> int:
        """Return the first round that may be requested."""
        return min(self.durable.values(), default=NEVER)

    def add_message(self, round: int, frame: Frame, consensus_step: int = 0) -> None:
        """Store the message of `round`, or one about numbers before it."""
        if round >= self.first_round:
            self.frames[round, consensus_step] = frame

    def get(self, round: int, consensus_step: int = 0) -> Frame | None:
        """Return that message, or None if it does not exist yet; may raise `MessageDiscarded`."""
        frame = self.frames.get((round, consensus_step))
        if frame is None and round < self.first_round:
            raise MessageDiscarded(
                f"round {round} is no longer kept, only rounds from {self.first_round} on: the "
                f"asker has said that it would not be set back so far; restore its newer checkpoint"
            )
        if frame is None and round < self.complete_from:
            raise MessageDiscarded(
                f"the message of round {round} is damaged on the disk; restore the asker's newer "
                f"checkpoint, or start all sites with --onward"
            )
        return self._read(frame) if isinstance(frame, StoredMessage) else frame

    def _read(self, place: StoredMessage) -> memoryview:
        """Read a message from the disk, once for all simultaneous users."""
        content = self._reads.get(place)
        if content is None:
            content = self._reads[place] = place.read()
        return content.data

    def record_durable(self, neighbour: int, durable: int) -> None:
        """Record that the neighbour will never request rounds before `durable`."""
        if durable > self.durable[neighbour]:
            self.durable[neighbour] = durable
            self.receipts.drop_before(neighbour, durable)
            self.drop_unneeded()

    def drop_unneeded(self) -> None:
        """Drop messages that nobody will request."""
        self.frames = {key: frame for key, frame in self.frames.items() if self._is_needed(*key)}

    def _is_needed(self, t: int, consensus_step: int) -> bool:
        """Return whether a message is needed; those about numbers are, even if an edge was down."""
        return any(
            t >= d and (consensus_step or not self.is_unneeded(j, t))
            for j, d in self.durable.items()
        )

    def copy(self) -> "Outbox":
        """Return a copy for a checkpoint that is written while rounds continue."""
        copy = Outbox(self.durable, self.is_unneeded)
        copy.durable, copy.frames = dict(self.durable), dict(self.frames)
        copy.receipts = self.receipts.copy()
        return copy

    def replace_by_locations(self, places: Mapping[MessageKey, StoredMessage]) -> None:
        """Replace messages in memory by their locations on the disk."""
        self.frames |= {key: place for key, place in places.items() if key in self.frames}

    def restore(
        self,
        frames: Mapping[MessageKey, StoredMessage],
        durable: Mapping[str, int],
        complete_from: int = 0,
    ) -> None:
        """Restore the content of a checkpoint."""
        self.durable = {j: int(durable[str(j)]) for j in self.durable}
        self.frames, self.complete_from = dict(frames), complete_from


class LatestOutbox(Outbox):
    """Newest frame of an agent in asynchronous rounds, and its last, that it has finished.

    Neighbours count rounds of their own, and keep the messages that they use in their journals.
    """

    keeps_latest = True

    @property
    def first_round(self) -> int:
        return 0

    def add_message(self, round: int, frame: Frame, consensus_step: int = 0) -> None:
        frames = self.frames | {(round, consensus_step): frame}
        self.frames = {key: frames[key] for key in sorted(frames)[-2:]}

    def drop_unneeded(self) -> None:
        """Do nothing: only newer messages replace older ones."""
