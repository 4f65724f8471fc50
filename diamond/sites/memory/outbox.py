"""Outbox: messages of an agent that a neighbour may still request."""

from collections.abc import Callable, Iterable, Mapping
from weakref import WeakValueDictionary

import numpy as np

from ..transport.wire_format import Frame
from .message_store import MessageKey, StoredMessage
from .receipts import Receipts

NEVER = 2**31  # beyond any run


class MessageDiscarded(LookupError):
    """Error: a request for a message that was discarded because nobody should need it."""


class Outbox:
    """Frames by round, each kept exactly as long as a neighbour may request it.

    A neighbour that could be set back to its checkpoint of round d requests the messages from round
    d on again, so messages before the smallest d of all neighbours are dropped. So are messages
    that a neighbour will never request by `is_unneeded`: the edge was down in that round.
    """

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
