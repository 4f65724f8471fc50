"""The messages an agent has told and a neighbour may still ask for."""

from collections.abc import Callable, Iterable, Mapping
from weakref import WeakValueDictionary

import numpy as np

from .frame import Frame
from .kept_messages import Key, Written

NEVER = 2**31  # a round that no run reaches


class Gone(LookupError):
    """A message that no neighbour could want any more, asked for all the same."""


class Outbox:
    """Frames by round, each kept exactly as long as a neighbour may ask for it.

    A neighbour that could be set back to round d, where its checkpoint is, asks for the messages
    of round d and later again, so what lies before the smallest d of all neighbours is dropped.
    So is what `spared` says that a neighbour will never ask for: the edge was down in that round.
    """

    def __init__(
        self, neighbours: Iterable[int], spared: Callable[[int, int], bool] = lambda j, t: False
    ):
        self.durable, self.spared = dict.fromkeys(neighbours, 0), spared
        self.frames: dict[Key, Frame | Written] = {}
        self._reads: WeakValueDictionary[Written, np.ndarray] = WeakValueDictionary()
        self.since = 0  # the first round of which the disk has all messages

    @property
    def floor(self) -> int:
        """The first round that may be asked for."""
        return min(self.durable.values(), default=NEVER)

    def put(self, round: int, frame: Frame, talk: int = 0) -> None:
        """Keep the message of `round`, or what was said about numbers before it."""
        if round >= self.floor:
            self.frames[round, talk] = frame

    def get(self, round: int, talk: int = 0) -> Frame | None:
        """That message; None if it is not there yet, `Gone` if it is no more."""
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
        """The message that lies there, read once for all who hold it at the same time."""
        content = self._reads.get(place)
        if content is None:
            content = self._reads[place] = place.read()
        return content.data

    def heard(self, neighbour: int, durable: int) -> None:
        """The neighbour will never ask for rounds before `durable`."""
        if durable > self.durable[neighbour]:
            self.durable[neighbour] = durable
            self.trim()

    def trim(self) -> None:
        """Drop what nobody will ask for: when one of them needs less, or an edge was down."""
        self.frames = {at: frame for at, frame in self.frames.items() if self._wanted(*at)}

    def _wanted(self, t: int, talk: int) -> bool:
        """What was said about numbers is, whatever became of the edge: nobody does without it."""
        return any(t >= d and (talk or not self.spared(j, t)) for j, d in self.durable.items())

    def copy(self) -> "Outbox":
        """The same as it is now, for a checkpoint that is written while rounds go on."""
        one = Outbox(self.durable, self.spared)
        one.durable, one.frames = dict(self.durable), dict(self.frames)
        return one

    def written(self, places: Mapping[Key, Written]) -> None:
        """Those messages are on the disk: they need no memory any more."""
        self.frames |= {key: place for key, place in places.items() if key in self.frames}

    def restore(
        self, frames: Mapping[Key, Written], durable: Mapping[str, int], since: int = 0
    ) -> None:
        """Go back to what a checkpoint holds."""
        self.durable = {j: int(durable[str(j)]) for j in self.durable}
        self.frames, self.since = dict(frames), since
