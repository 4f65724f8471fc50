"""Going back, all agents to the same round and with the same smaller steps, as a simulation does.

Where the objective has risen (`diamond.auto.watch`), all know it at the same look; where x or y of
an agent have outgrown the start, in the next round that is a multiple of `EVERY`, after which all
say how large theirs are. Where x or y of an agent is no longer finite, it cannot tell its next
message: it leaves, and answers whoever asks for it by the word that it has gone back
(`frame.gone`). Whoever hears that leaves too, at the same exchange each time, since whatever was
told before is still there. Then all talk, at an exchange of the clock that no round has: about the
first round in which anyone was lost, and about how large x and y were in the states kept until
then.

The clock goes on at `span` rounds later, so that a message of a round made again has a name of its
own: what is kept, asked for again after a crash, or forgotten, is as ever.
"""

from collections.abc import Sequence

import jax
import numpy as np

from ..auto import watch
from ..numbers.learned import learned_names
from ..numbers.open_numbers import Found
from .agent import Agent
from .progress import Mark, Progress, mark

MOST = 1e30  # of a number that is told: finite
LOOK = 2**30  # before what is said of how large x and y are, after what is said of numbers
TIMES = 2 * watch.SHRINKS  # that a run goes back, at most: lost, and risen
SPARE = 3  # rounds of the clock beside those of the run: see `Clock`
NEVER = 2**31  # that a clock does not reach


class WentBack(Exception):
    """A neighbour has gone back, and so must whoever needs its next message."""


class Clock:
    """The rounds of the clock that a run has each time, if it may go back: `span` of them.

    After its own are one in which all say that they have made them, and one to talk in about going
    back.
    """

    def __init__(self, agent: Agent, rounds: int, alone: bool):
        self.rounds, self.exchanges = rounds, agent.exchanges
        own = rounds + SPARE
        fits = (TIMES + 1) * own * agent.exchanges < NEVER
        self.back = fits and states(agent, alone) > 0
        self.span = own if self.back else rounds + 1
        last = (TIMES + 1) * own if self.back else rounds
        self.last = last * agent.exchanges  # exchange at which an agent says that it has finished

    def round(self, tick: int) -> int:
        """That an exchange belongs to."""
        return tick // self.exchanges % self.span

    def done(self, progress: Progress) -> int:
        """The exchange in which all say that they have made all rounds."""
        return (progress.base + self.rounds + 1) * self.exchanges

    def talk(self, progress: Progress) -> int:
        """That in which they talk about going back."""
        return (progress.base + self.rounds + 2) * self.exchanges

    def shrinks(self, progress: Progress) -> bool:
        """Whether a run that is lost may go back once more."""
        return self.back and watch.smaller(watch.factor(progress.found)) is not None


def states(agent: Agent, alone: bool) -> int:
    """That the agent keeps to go back to, at most; 0 where it may not: alpha was given, or rounds

    are made without those away.
    """
    open = "alpha" in learned_names(agent.given) and hasattr(agent.outline, "shrunk")
    return watch.RECENT + 2 if open and not alone else 0


def low(agent: Agent, progress: Progress, span: int) -> tuple[Progress, str]:
    """From where the objective has risen to where it was lowest; and what is said of it."""
    to, found = progress.lowest or start(agent, progress), dict(progress.found)
    said = watch.calm(found, watch.risen(found), progress.t, to.t)
    return _back(progress, to, found, progress.recent, span), said


def lost(
    agent: Agent, progress: Progress, broken: int, sizes: Sequence[float], span: int
) -> tuple[Progress, str]:
    """From a run that was lost in round `broken` to the last state that was not large.

    `sizes` are those of the start and of `marks`, of the agent that has the largest.
    """
    which, kept = watch.back_to(sizes[1:], sizes[0]), marks(progress, broken)
    to, found = kept[which] if which >= 0 else start(agent, progress), dict(progress.found)
    factor = watch.smaller(watch.factor(found))
    assert factor is not None
    watch.shrink(found, factor, broken + 1 - to.t)
    said = (
        f"x or y is lost in round {broken}; back to round {to.t} with steps {factor:g} times the "
        f"first (L_g {1 / factor:g} times)"
    )
    return _back(progress, to, found, kept[: max(which, 0)], span), said


def _back(
    progress: Progress, to: Mark, found: dict[str, Found], recent: Sequence[Mark], span: int
) -> Progress:
    return progress._replace(
        t=to.t,
        state=to.state,
        kept=to.kept,
        found=found,
        base=progress.base + span,
        recent=tuple(one for one in recent if one.t <= to.t),
        anew=True,
    )


def start(agent: Agent, progress: Progress) -> Mark:
    """Where the agent began."""
    return progress.start or mark(agent.begin())


def marks(progress: Progress, broken: int) -> list[Mark]:
    """The states kept of rounds up to that."""
    return [one for one in progress.recent if one.t <= broken][-watch.RECENT :]


def sizes(agent: Agent, progress: Progress, broken: int) -> np.ndarray:
    """How large x and y are at the start, and in those states."""
    return _sizes(start(agent, progress), *marks(progress, broken))


def now(agent: Agent, progress: Progress) -> np.ndarray:
    """How large x and y are where the agent stands, at the start, and in the state kept last."""
    here = mark(progress)
    return _sizes(here, start(agent, progress), *(progress.recent or (here,))[-1:])


def _sizes(*each: Mark) -> np.ndarray:
    points = [jax.tree.map(lambda a: a[None], (one.state.x, one.state.y)) for one in each]
    return np.minimum([watch.size(point) for point in points], MOST)


def marks_here(progress: Progress) -> bool:
    """Whether where the agent stands is to be looked at, and kept to go back to."""
    return progress.t > 0 and progress.t % watch.EVERY == 0


def marked(progress: Progress) -> Progress:
    """With where it stands kept, if it is time to; one more than needed, since some are ahead."""
    if not marks_here(progress):
        return progress
    return progress._replace(recent=(*progress.recent, mark(progress))[-watch.RECENT - 1 :])
