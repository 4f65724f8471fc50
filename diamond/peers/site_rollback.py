"""Rollback of all agents to the same round with the same smaller steps, as in a simulation.

If the objective has risen (`auto/loss_monitor.py`), all agents know it at the same check. If x or y
of an agent have outgrown the start, all know it in the next round that is a multiple of `EVERY`,
after which all send their sizes. If x or y of an agent are no longer finite, the agent cannot send
its next message: it leaves, and answers requests with the rollback notice (`frame.gone`). Whoever
receives the notice leaves too, at the same exchange each time, since earlier messages are still
available. Then all communicate, at an exchange of the clock that no round has, the first round in
which any agent diverged, and the sizes of x and y in the states kept until then.

The clock continues `span` rounds later, so that a message of a repeated round has its own name;
storing, requesting and discarding messages work as always.
"""

from collections.abc import Sequence

import jax
import numpy as np

from ..auto import loss_monitor
from ..schedules.deferred import ResolvedValue
from ..schedules.learned import learned_names
from .round_progress import RollbackState, AgentProgress, mark
from .site_agent import Agent

MOST = 1e30  # largest number that is sent, finite
LOOK = 2**30  # offset of messages about sizes, after those about numbers
TIMES = 2 * loss_monitor.SHRINKS  # maximum number of rollbacks: diverged, and risen
SPARE = 3  # rounds of the clock besides those of the run: see `Clock`
NEVER = 2**31  # beyond any clock


class NeighbourRolledBack(Exception):
    """Error: a neighbour has rolled back, so its next message will not come."""


class RunClock:
    """Clock of a run that may roll back: each attempt takes `span` rounds.

    After the rounds of the run, one round confirms that all are finished, and one negotiates a
    rollback.
    """

    def __init__(self, agent: Agent, rounds: int, alone: bool):
        self.rounds, self.exchanges = rounds, agent.exchanges
        own = rounds + SPARE
        fits = (TIMES + 1) * own * agent.exchanges < NEVER
        self.back = fits and states(agent, alone) > 0
        self.span = own if self.back else rounds + 1
        last = (TIMES + 1) * own if self.back else rounds
        self.last = last * agent.exchanges  # exchange of the final report of an agent

    def round(self, tick: int) -> int:
        """Return the round of an exchange."""
        return tick // self.exchanges % self.span

    def done(self, progress: AgentProgress) -> int:
        """Return the exchange in which all agents confirm that they have finished."""
        return (progress.base + self.rounds + 1) * self.exchanges

    def talk(self, progress: AgentProgress) -> int:
        """Return the exchange in which agents negotiate a rollback."""
        return (progress.base + self.rounds + 2) * self.exchanges

    def shrinks(self, progress: AgentProgress) -> bool:
        """Return whether a diverged run may roll back once more."""
        return self.back and loss_monitor.smaller(loss_monitor.factor(progress.found)) is not None


def states(agent: Agent, alone: bool) -> int:
    """Return the maximum number of rollback states of the agent.

    It is 0 if the agent may not roll back: alpha was given, or rounds continue without absent
    agents.
    """
    open = "alpha" in learned_names(agent.given) and hasattr(agent.outline, "with_scaled_steps")
    return loss_monitor.RECENT + 2 if open and not alone else 0


def low(agent: Agent, progress: AgentProgress, span: int) -> tuple[AgentProgress, str]:
    """Roll back from a risen objective to its lowest state; return a description too."""
    to, found = progress.lowest or start(agent, progress), dict(progress.found)
    said = loss_monitor.calm(found, loss_monitor.risen(found), progress.t, to.t)
    return _back(progress, to, found, progress.recent, span), said


def lost(
    agent: Agent, progress: AgentProgress, broken: int, sizes: Sequence[float], span: int
) -> tuple[AgentProgress, str]:
    """Roll back from divergence in round `broken` to the last state that was not large.

    `sizes` are those of the start and of `marks`, maxima over the agents.
    """
    which, kept = loss_monitor.back_to(sizes[1:], sizes[0]), marks(progress, broken)
    to, found = kept[which] if which >= 0 else start(agent, progress), dict(progress.found)
    factor = loss_monitor.smaller(loss_monitor.factor(found))
    assert factor is not None
    loss_monitor.shrink(found, factor, broken + 1 - to.t)
    said = (
        f"x or y is lost in round {broken}; back to round {to.t} with steps {factor:g} times the "
        f"first (L_g {1 / factor:g} times)"
    )
    return _back(progress, to, found, kept[: max(which, 0)], span), said


def _back(
    progress: AgentProgress, to: RollbackState, found: dict[str, ResolvedValue], recent: Sequence[RollbackState], span: int
) -> AgentProgress:
    return progress._replace(
        t=to.t,
        state=to.state,
        kept=to.kept,
        found=found,
        base=progress.base + span,
        recent=tuple(one for one in recent if one.t <= to.t),
        anew=True,
    )


def start(agent: Agent, progress: AgentProgress) -> RollbackState:
    """Return the initial state of the agent."""
    return progress.start or mark(agent.begin())


def marks(progress: AgentProgress, broken: int) -> list[RollbackState]:
    """Return the states kept up to that round."""
    return [one for one in progress.recent if one.t <= broken][-loss_monitor.RECENT :]


def sizes(agent: Agent, progress: AgentProgress, broken: int) -> np.ndarray:
    """Return the sizes of x and y at the start and in those states."""
    return _sizes(start(agent, progress), *marks(progress, broken))


def now(agent: Agent, progress: AgentProgress) -> np.ndarray:
    """Return the sizes of x and y now, at the start, and in the last kept state."""
    here = mark(progress)
    return _sizes(here, start(agent, progress), *(progress.recent or (here,))[-1:])


def _sizes(*each: RollbackState) -> np.ndarray:
    points = [jax.tree.map(lambda a: a[None], (one.state.x, one.state.y)) for one in each]
    return np.minimum([loss_monitor.size(point) for point in points], MOST)


def marks_here(progress: AgentProgress) -> bool:
    """Return whether the current state is to be checked and kept for rollbacks."""
    return progress.t > 0 and progress.t % loss_monitor.EVERY == 0


def marked(progress: AgentProgress) -> AgentProgress:
    """Keep the current state if it is due; one more than needed, since some agents are ahead."""
    if not marks_here(progress):
        return progress
    return progress._replace(recent=(*progress.recent, mark(progress))[-loss_monitor.RECENT - 1 :])
