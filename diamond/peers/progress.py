"""Where an agent stands, and the exchanges that a round is made of."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax

from ..auto import watch
from ..numbers.open_numbers import Found
from ..rounds.algorithm import Algorithm, State
from .frame import Layout


class Mark(NamedTuple):
    """Where the agent stood once, to go back to."""

    t: int
    state: State
    kept: Any = None


class Progress(NamedTuple):
    """Where an agent stands: everything its rounds to come depend on.

    The clock of peers counts on where a run goes back, so that no two messages have one name.
    """

    t: int  # rounds made
    state: State
    spent: jax.Array  # its counter of oracle calls
    algorithm: Any  # with the numbers in use
    found: dict[str, Found]  # those of them that were left to the run
    kept: Any = None  # of the messages of those it hears, where these are compressed or late
    base: int = 0  # of the clock, before round 0
    lowest: Mark | None = None  # where the objective was lowest; None: at the start
    recent: tuple[Mark, ...] = ()  # of the last rounds that are multiples of `EVERY`
    anew: bool = False  # it has gone back, and forgets the numbers that it had

    @property
    def clock(self) -> int:
        """Rounds by the clock of peers."""
        return self.base + self.t

    @property
    def made(self) -> int:
        """Rounds made, those that the run went back on too."""
        return self.t + watch.lost(self.found)


def mark(progress: Progress) -> Mark:
    """Where the agent stands, to go back to."""
    return Mark(progress.t, progress.state, progress.kept)


class Turn(NamedTuple):
    """One exchange of a round: its stage, which one of the round it is (a stage may be taken
    several times), and the stages before it that tell nothing."""

    stage: int
    number: int
    before: tuple[tuple[int, int], ...]


def turns_of(
    algorithm: Algorithm, layouts: Sequence[Layout]
) -> tuple[list[Turn], tuple[tuple[int, int], ...]]:
    """The exchanges of a round, and the stages after the last one."""
    turns: list[Turn] = []
    silent: tuple[tuple[int, int], ...] = ()
    number = 0
    for stage, (each, told) in enumerate(zip(algorithm.stages, layouts)):
        for _ in range(each.times):
            if told:
                turns.append(Turn(stage, number, silent))
                silent = ()
            else:
                silent = (*silent, (stage, number))
            number += 1
    return turns, silent
