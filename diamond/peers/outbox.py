"""The messages an agent has told and a neighbour may still ask for."""

from collections.abc import Callable, Iterable, Mapping

import numpy as np

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
        self.frames: dict[tuple[int, int], bytes] = {}  # by round and talk

    @property
    def floor(self) -> int:
        """The first round that may be asked for."""
        return min(self.durable.values(), default=NEVER)

    def put(self, round: int, frame: bytes, talk: int = 0) -> None:
        """Keep the message of `round`, or what was said about numbers before it."""
        if round >= self.floor:
            self.frames[round, talk] = frame

    def get(self, round: int, talk: int = 0) -> bytes | None:
        """That message; None if it is not there yet, `Gone` if it is no more."""
        if round < self.floor and (round, talk) not in self.frames:
            raise Gone(
                f"round {round} is no longer kept, only rounds from {self.floor} on: the asker has "
                f"said that it would not be set back so far; restore its newer checkpoint"
            )
        return self.frames.get((round, talk))

    def heard(self, neighbour: int, durable: int) -> None:
        """The neighbour will never ask for rounds before `durable`."""
        if durable > self.durable[neighbour]:
            self.durable[neighbour] = durable
            self.trim()

    def trim(self) -> None:
        """Drop what nobody will ask for: when one of them needs less, or an edge was down."""
        self.frames = {at: frame for at, frame in self.frames.items() if self._wanted(at[0])}

    def _wanted(self, t: int) -> bool:
        return any(t >= d and not self.spared(j, t) for j, d in self.durable.items())

    def copy(self) -> "Outbox":
        """The same as it is now, for a checkpoint that is written while rounds go on."""
        one = Outbox(self.durable, self.spared)
        one.durable, one.frames = dict(self.durable), dict(self.frames)
        return one

    def arrays(self) -> dict[str, np.ndarray]:
        """The frames as arrays by name, for a checkpoint."""
        named = {f"frame[{t},{talk}]": frame for (t, talk), frame in self.frames.items()}
        return {name: np.frombuffer(frame, np.uint8) for name, frame in named.items()}

    def restore(self, arrays: Mapping[str, np.ndarray], durable: Mapping[str, int]) -> None:
        """Go back to what a checkpoint holds."""
        self.durable = {j: int(durable[str(j)]) for j in self.durable}
        self.frames = {}
        for name, array in arrays.items():
            if name.startswith("frame["):
                round, talk = name[6:-1].split(",")
                self.frames[int(round), int(talk)] = array.tobytes()
