"""Outbox: messages of an agent that a neighbour may still request."""

from collections.abc import Callable, Iterable, Mapping
from weakref import WeakValueDictionary

import numpy as np

from .message_store import Key, Written
from .wire_format import Frame

NEVER = 2**31  # beyond any run


class Gone(LookupError):
    """Error: a request for a message that was discarded because nobody should need it."""


class Outbox:
    """Frames by round, each kept exactly as long as a neighbour may request it.

    A neighbour that could be set back to its checkpoint of round d requests the messages from round
    d on again, so messages before the smallest d of all neighbours are dropped. So are messages
    that a neighbour will never request by `spared`: the edge was down in that round.
    """

    def __init__(
        self, neighbours: Iterable[int], spared: Callable[[int, int], bool] = lambda j, t: False
    ):
        self.durable, self.spared = dict.fromkeys(neighbours, 0), spared
        self.frames: dict[Key, Frame | Written] = {}
        self._reads: WeakValueDictionary[Written, np.ndarray] = WeakValueDictionary()
        self.since = 0  # first round whose messages are all on the disk

    @property
    def floor(self) -> int:
        """Return the first round that may be requested."""
        return min(self.durable.values(), default=NEVER)

    def put(self, round: int, frame: Frame, talk: int = 0) -> None:
        """Store the message of `round`, or one about numbers before it."""
        if round >= self.floor:
            self.frames[round, talk] = frame

    def get(self, round: int, talk: int = 0) -> Frame | None:
        """Return that message; None if it does not exist yet. Raises `Gone` if it was dropped."""
        found = self.frames.get((round, talk))
        if found is None and round < self.floor:
            raise Gone(
                f"round {round} is no longer kept, only rounds from {self.floor} on: the asker has "
                f"said that it would not be set back so far; restore its newer checkpoint"
            )
        if found is None and round < self.since:
            raise Gone(
                f"the message of round {round} is damaged on the disk; restore the asker's newer "
                f"checkpoint, or start all sites with --onward"
            )
        return self._read(found) if isinstance(found, Written) else found

    def _read(self, place: Written) -> memoryview:
        """Read a message from the disk, once for all simultaneous users."""
        content = self._reads.get(place)
        if content is None:
            content = self._reads[place] = place.read()
        return content.data

    def heard(self, neighbour: int, durable: int) -> None:
        """Record that the neighbour will never request rounds before `durable`."""
        if durable > self.durable[neighbour]:
            self.durable[neighbour] = durable
            self.trim()

    def trim(self) -> None:
        """Drop messages that nobody will request."""
        self.frames = {at: frame for at, frame in self.frames.items() if self._wanted(*at)}

    def _wanted(self, t: int, talk: int) -> bool:
        """Return whether a message is needed; those about numbers are, even if an edge was down."""
        return any(t >= d and (talk or not self.spared(j, t)) for j, d in self.durable.items())

    def copy(self) -> "Outbox":
        """Return a copy for a checkpoint that is written while rounds continue."""
        one = Outbox(self.durable, self.spared)
        one.durable, one.frames = dict(self.durable), dict(self.frames)
        return one

    def written(self, places: Mapping[Key, Written]) -> None:
        """Replace messages in memory by their locations on the disk."""
        self.frames |= {key: place for key, place in places.items() if key in self.frames}

    def restore(
        self, frames: Mapping[Key, Written], durable: Mapping[str, int], since: int = 0
    ) -> None:
        """Restore the content of a checkpoint."""
        self.durable = {j: int(durable[str(j)]) for j in self.durable}
        self.frames, self.since = dict(frames), since
