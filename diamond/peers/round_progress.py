"""Progress of an agent, and the exchanges of a round."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax

from ..auto import loss_monitor
from ..interface.round_interface import Algorithm, State
from ..schedules.deferred import ResolvedValue
from .wire_format import Layout


class RollbackState(NamedTuple):
    """Earlier state of the agent, for rollbacks."""

    t: int
    state: State
    kept: Any = None


class AgentProgress(NamedTuple):
    """Everything that an agent's later rounds depend on.

    The clock of peers continues after a rollback, so that no two messages have the same name.
    """

    t: int  # finished rounds
    state: State
    spent: jax.Array  # counter of oracle calls
    algorithm: Any  # with the numbers in use
    found: dict[str, ResolvedValue]  # numbers left to the run
    kept: Any = None  # channel state of the sources
    base: int = 0  # offset of the clock at round 0
    start: RollbackState | None = None  # initial state, if not the usual one
    lowest: RollbackState | None = None  # state of the lowest objective; None: the start
    recent: tuple[RollbackState, ...] = ()  # states of the last rounds that are multiples of `EVERY`
    anew: bool = False  # after a rollback: discard the estimates

    @property
    def clock(self) -> int:
        """Return the round on the clock of peers."""
        return self.base + self.t

    @property
    def made(self) -> int:
        """Return the number of rounds run, including those rolled back."""
        return self.t + loss_monitor.lost(self.found)


def mark(progress: AgentProgress) -> RollbackState:
    """Return the current state for rollbacks."""
    return RollbackState(progress.t, progress.state, progress.kept)


class RoundExchange(NamedTuple):
    """One exchange of a round: its stage, its index in the round, and silent stages before it."""

    stage: int
    number: int
    before: tuple[tuple[int, int], ...]


def turns_of(
    algorithm: Algorithm, layouts: Sequence[Layout]
) -> tuple[list[RoundExchange], tuple[tuple[int, int], ...]]:
    """Return the exchanges of a round, and the stages after the last one."""
    turns: list[RoundExchange] = []
    silent: tuple[tuple[int, int], ...] = ()
    number = 0
    for stage, (each, told) in enumerate(zip(algorithm.stages, layouts)):
        for _ in range(each.repeats):
            if told:
                turns.append(RoundExchange(stage, number, silent))
                silent = ()
            else:
                silent = (*silent, (stage, number))
            number += 1
    return turns, silent
