"""Progress of an agent, and the exchanges of a round."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax

from ...auto.loss_monitor import MonitorState
from ...interface.round_interface import Method, State
from ...schedules.deferred import ResolvedValue
from ..transport.wire_format import Layout


class RollbackState(NamedTuple):
    """Earlier state of the agent, for rollbacks."""

    t: int
    state: State
    channel_states: Any = None


class AgentProgress(NamedTuple):
    """Everything that an agent's later rounds depend on.

    The clock of peers continues after a rollback, so that no two messages have the same name.
    """

    t: int  # finished rounds
    state: State
    spent: jax.Array  # counter of oracle calls
    algorithm: Method  # with the numbers in use
    estimates: dict[str, ResolvedValue]  # numbers left to the run
    channel_states: Any = None  # of the sources
    clock_offset: int = 0  # of the clock at round 0
    start: RollbackState | None = None  # initial state, if not the usual one
    lowest_state: RollbackState | None = None  # of the objective; None: the start
    recent_states: tuple[RollbackState, ...] = ()  # in rounds divisible by `SAVE_EVERY`
    discard_estimates: bool = False  # after a rollback

    @property
    def clock(self) -> int:
        """Return the round on the clock of peers."""
        return self.clock_offset + self.t

    @property
    def has_ended(self) -> bool:
        """Return whether the algorithm has ended at all agents, so that no round is to come."""
        return bool(self.algorithm.is_finished(self.state))

    @property
    def end_reason(self) -> str:
        """Return why the algorithm has ended, or "" if it has not or does not say."""
        return self.algorithm.describe_end(self.state)

    @property
    def rounds_run(self) -> int:
        """Return the number of rounds run, including those rolled back."""
        return self.t + MonitorState.read(self.estimates).rolled_back


def rollback_state(progress: AgentProgress) -> RollbackState:
    """Return the current state for rollbacks."""
    return RollbackState(progress.t, progress.state, progress.channel_states)


class RoundExchange(NamedTuple):
    """One exchange of a round: its stage, its index in the round, and silent stages before it."""

    stage: int
    position: int
    silent_before: tuple[tuple[int, int], ...]


def split_into_exchanges(
    algorithm: Method, layouts: Sequence[Layout]
) -> tuple[list[RoundExchange], tuple[tuple[int, int], ...]]:
    """Return the exchanges of a round, and the stages after the last one."""
    exchanges: list[RoundExchange] = []
    silent: tuple[tuple[int, int], ...] = ()
    position = 0
    for stage, (rule, layout) in enumerate(zip(algorithm.stages, layouts)):
        for _ in range(rule.repeats):
            if layout:
                exchanges.append(RoundExchange(stage, position, silent))
                silent = ()
            else:
                silent = (*silent, (stage, position))
            position += 1
    return exchanges, silent
