"""Rollback of all agents to the same round with the same smaller steps, as in a simulation.

If the objective has risen (`auto/loss_monitor.py`), all agents know it at the same check. If x or y
of an agent have outgrown the start, all know it in the next multiple of `SAVE_EVERY` rounds, after
which all send their sizes. If x or y of an agent are no longer finite, the agent cannot send its
next message: it leaves, and answers requests with a `RollbackNotice`. Whoever receives the notice
leaves too, at the same exchange each time, since earlier messages are still available. Then all
communicate, at an exchange of the clock that no round has, the first round in which any agent
diverged, and the sizes of x and y in the states kept until then.

The clock continues `span` rounds later, so that a message of a repeated round has its own name;
storing, requesting and discarding messages work as always.
"""

from collections.abc import Sequence

import jax
import numpy as np

from ...auto import loss_monitor, rollback_limits
from ...schedules.deferred import ResolvedValue
from ...schedules.learned import learned_names
from ..rounds.round_progress import AgentProgress, RollbackState, rollback_state
from ..rounds.site_agent import Agent

MAX_SENT = 1e30  # largest number that is sent, finite
SIZE_CHECK_STEP = 2**30  # offset of messages about sizes, after those about numbers
TOTAL_STEP = SIZE_CHECK_STEP + 2**29  # of the total of an exact mean, towards the root of the tree
MEAN_STEP = TOTAL_STEP + 1  # of an exact mean, from the root
MESSAGE_STEPS = 0, TOTAL_STEP, MEAN_STEP  # of what the method sends
MAX_ROLLBACKS = 2 * rollback_limits.MOST_SHRINKS  # maximum number of rollbacks: diverged, and risen
SPARE_ROUNDS = 3  # rounds of the clock besides those of the run: see `RunClock`
NEVER = 2**31  # beyond any clock


class NeighbourRolledBack(Exception):
    """Error: a neighbour has rolled back, so its next message will not come."""


class RunClock:
    """Clock of a run that may roll back: each attempt takes `span` rounds.

    After the rounds of the run, one round confirms that all are finished, and one negotiates a
    rollback. Members may change earlier, after `rounds`; the clock is that of all planned rounds,
    so that agents which do not know of the change yet have the same.
    """

    def __init__(
        self, agent: Agent, rounds: int, planned_rounds: int, continues_without_absent: bool
    ):
        self.agent, self.rounds, self.exchange_count = agent, rounds, agent.exchange_count
        attempt = planned_rounds + SPARE_ROUNDS
        fits = (MAX_ROLLBACKS + 1) * attempt * agent.exchange_count < NEVER
        self.can_roll_back = fits and max_rollback_states(agent, continues_without_absent) > 0
        self.span = attempt if self.can_roll_back else rounds + 1
        last_round = (MAX_ROLLBACKS + 1) * attempt if self.can_roll_back else rounds
        self.last_tick = last_round * agent.exchange_count  # of the final report of an agent

    def shorten(self, rounds: int) -> None:
        """End the run after `rounds` rounds."""
        self.rounds = rounds
        if not self.can_roll_back:
            self.span, self.last_tick = rounds + 1, rounds * self.exchange_count

    def round_of(self, tick: int) -> int:
        """Return the round of an exchange."""
        round, every = tick // self.exchange_count % self.span, self.agent.exchange_every
        return round if every == 1 else min(round * every + every - 1, self.rounds)

    def tick_of(self, clock: int) -> int:
        """Return the number of exchanges before that round of the clock."""
        return self.agent.first_tick(clock, clock // self.span * self.span)

    def finish_tick(self, progress: AgentProgress) -> int:
        """Return the exchange in which all agents confirm that they have finished."""
        if not self.can_roll_back:
            return self.last_tick
        return (progress.clock_offset + self.span - 2) * self.exchange_count

    def rollback_tick(self, progress: AgentProgress) -> int:
        """Return the exchange in which agents negotiate a rollback."""
        return (progress.clock_offset + self.span - 1) * self.exchange_count

    def negotiates(self, tick: int) -> bool:
        """Return whether agents negotiate a rollback in that exchange."""
        round = tick // self.exchange_count % self.span
        return self.can_roll_back and round == self.span - 1

    def may_roll_back_again(self, progress: AgentProgress) -> bool:
        """Return whether a diverged run may roll back once more."""
        factor = loss_monitor.MonitorState.read(progress.estimates).scale
        return self.can_roll_back and rollback_limits.next_step_scale(factor) is not None


def max_rollback_states(agent: Agent, continues_without_absent: bool) -> int:
    """Return the maximum number of rollback states of the agent.

    It is 0 if the agent may not roll back: alpha was given, or rounds continue without absent
    agents.
    """
    has_steps = agent.template.with_scaled_steps(1.0) is not None
    learns_alpha = "alpha" in learned_names(agent.algorithm) and has_steps
    return rollback_limits.SAVED_STATES + 2 if learns_alpha and not continues_without_absent else 0


def roll_back_to_lowest(
    agent: Agent, progress: AgentProgress, span: int
) -> tuple[AgentProgress, str]:
    """Roll back from a risen objective to its lowest state; return a description too."""
    target = progress.lowest_state or initial_state(agent, progress)
    estimates = dict(progress.estimates)
    message = loss_monitor.record_rollback(estimates, progress.t, target.t)
    return _roll_back(progress, target, estimates, progress.recent_states, span), message


def roll_back_from_divergence(
    agent: Agent, progress: AgentProgress, diverged_round: int, sizes: Sequence[float], *, span: int
) -> tuple[AgentProgress, str]:
    """Roll back from divergence in round `diverged_round` to the last state that was not large.

    `sizes` are those of the start and of `states_until`, maxima over the agents.
    """
    states, estimates = states_until(progress, diverged_round), dict(progress.estimates)
    index = rollback_limits.rollback_index(sizes[1:], sizes[0])
    target = states[index] if index >= 0 else initial_state(agent, progress)
    factor = rollback_limits.next_step_scale(loss_monitor.MonitorState.read(estimates).scale)
    assert factor is not None
    loss_monitor.record_shrink(estimates, factor, diverged_round + 1 - target.t)
    message = (
        f"x or y is lost in round {diverged_round}; back to round {target.t} with steps {factor:g} "
        f"times the first (L_g {1 / factor:g} times)"
    )
    return _roll_back(progress, target, estimates, states[: max(index, 0)], span), message


def _roll_back(
    progress: AgentProgress,
    target: RollbackState,
    estimates: dict[str, ResolvedValue],
    recent_states: Sequence[RollbackState],
    span: int,
) -> AgentProgress:
    return progress._replace(
        t=target.t,
        state=target.state,
        channel_states=target.channel_states,
        estimates=estimates,
        clock_offset=progress.clock_offset + span,
        recent_states=tuple(s for s in recent_states if s.t <= target.t),
        discard_estimates=True,
    )


def initial_state(agent: Agent, progress: AgentProgress) -> RollbackState:
    """Return the initial state of the agent."""
    return progress.start or rollback_state(agent.initial_progress())


def states_until(progress: AgentProgress, diverged_round: int) -> list[RollbackState]:
    """Return the states kept up to that round."""
    return [s for s in progress.recent_states if s.t <= diverged_round][
        -rollback_limits.SAVED_STATES :
    ]


def state_sizes(agent: Agent, progress: AgentProgress, diverged_round: int) -> np.ndarray:
    """Return the sizes of x and y at the start and in those states."""
    return _state_sizes(initial_state(agent, progress), *states_until(progress, diverged_round))


def current_sizes(agent: Agent, progress: AgentProgress) -> np.ndarray:
    """Return the sizes of x and y now, at the start, and in the last kept state."""
    current = rollback_state(progress)
    last = (progress.recent_states or (current,))[-1:]
    return _state_sizes(current, initial_state(agent, progress), *last)


def _state_sizes(*states: RollbackState) -> np.ndarray:
    points = [jax.tree.map(lambda a: a[None], (s.state.x, s.state.y)) for s in states]
    return np.minimum([rollback_limits.largest_norm(point) for point in points], MAX_SENT)


def is_state_due(progress: AgentProgress) -> bool:
    """Return whether the current state is to be checked and kept for rollbacks."""
    return progress.t > 0 and progress.t % rollback_limits.SAVE_EVERY == 0


def keep_state_if_due(progress: AgentProgress) -> AgentProgress:
    """Keep the current state if it is due; one more than needed, since some agents are ahead."""
    if not is_state_due(progress):
        return progress
    states = (*progress.recent_states, rollback_state(progress))
    return progress._replace(recent_states=states[-rollback_limits.SAVED_STATES - 1 :])
