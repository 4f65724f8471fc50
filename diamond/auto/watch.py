"""A monitor of the upper loss, and the shorter steps of a run that rolls back.

After rounds 1, 50, 100, 200, ..., every agent evaluates its f_i(x_i, y_i) on its
first rows, always the same ones; l is the mean over the agents. The run rolls back where

    l > l_1 + RISEN (l_1 - least) + SMALL |l_1|,   l_1: after round 1, least: of all looks

to the state of the look with the least l, or to the start, and goes on with steps FACTOR times as
long. Agents that disagree have a lower l than their mean, so that only the start, where they do
not, is compared with. This is all that is evaluated beside the rounds: one value of f at each
look. Of a lower level in common nobody alone knows l, and among more than MANY agents it is not
sent: there nothing is monitored.

All of it is kept among the numbers that a run has found, so that all who have the same numbers do
the same: "risen", how often; "shrunk", the factor of all steps of a run whose x or y was no longer
finite, which rolls back as well (`engine.rollback`); and "lost", the rounds rolled back.
"""

import math
from collections.abc import MutableMapping, Sequence
from dataclasses import replace
from typing import Any

import jax
import numpy as np

from ..core import host
from ..core.cost import Cost
from ..core.tree import Tree
from ..hypergradient.diagnostics.lipschitz import raised
from ..machine.compiler import briefly
from ..numbers.open_numbers import Deferred, Found, Measured, Setting
from ..problem import Objectives, Rows

RISEN, SMALL = 0.1, 0.05  # of what l has fallen, and of l: a rise beyond its noise
FACTOR, SHRINKS = 0.25, 8  # of the steps each time, and how often at most where x or y is lost
MOST_RISEN = 2  # the same where l has risen: it rises too while y converges
EVERY, RECENT = 100, 2  # the states of so many last multiples of 100 rounds are kept, to go back to
LARGE = 1e2  # times the start: x and y of a state that is not to go back to
LOST = 1e6  # times the start: given up, though finite
GROWN = 3.0  # times the state kept before: what is large and grows so is lost, and not only large
ROWS = 256  # of each agent, at most, that f is evaluated on
MANY = 64  # agents, at most, whose values are sent
HUGE = 1e29  # in the place of a value that is not finite
EMPTY = -1e30  # in the place of another agent's value: below any, and finite to be sent
Memory = MutableMapping[str, Found]
BEGAN, NOW = "_began", "_losses"  # l after round 1; here, and the least since the run went back


def _evaluate(setting: Setting) -> Found:
    """Evaluate l where the agents stand, and remember it."""
    agents = setting.agents
    if setting.moved is None or setting.round < 1 or agents > MANY:
        return Found(0.0, lasting=agents > MANY)

    def measure() -> Measured:
        look = lambda rows, point, agents: (*_losses(first_rows(rows(1)), *point), agents)
        losses, counts, numbers = setting.each(look, setting.point)
        found = np.full((len(losses), agents), EMPTY)
        losses = np.nan_to_num(losses, nan=HUGE, posinf=HUGE, neginf=-HUGE)
        found[np.arange(len(losses)), np.asarray(numbers)] = losses
        rows = np.asarray(counts, np.int64)
        return found, Cost(samples=rows, gradients=rows)

    found, cost = setting.talk.largest("loss", measure)
    note(setting, float(np.mean(found)))
    return Found(0.0, cost, agreed=agents, talks=1)


loss_monitor = Deferred("_loss_monitor", _evaluate)


@briefly()
def _losses(few: Objectives, x: Tree, y: Tree) -> tuple[jax.Array, jax.Array]:
    """f of every agent on all of these rows, and how many they are."""
    return jax.vmap(lambda few, x, y: few.f(x, y, None))(few, x, y), few.valid.count


def first_rows(objectives: Objectives) -> Objectives:
    """The first rows of every agent, as if these were all; of a stream, rows drawn for it."""

    def cut(rows: Any, part: int) -> Rows:
        if rows.stored is None:
            return rows.looked_at(part, ROWS)
        data = jax.tree.map(lambda a: a[:, :ROWS], rows.data)
        return Rows(data, host.put(np.minimum(rows.count, ROWS)), 1)

    return replace(objectives, train=cut(objectives.train, 0), valid=cut(objectives.valid, 1))


def note(setting: Setting, loss: float) -> None:
    """Remember l where the agents look."""
    setting.memory.setdefault(BEGAN, Found(loss, lasting=True))
    least = float(setting.before(NOW, [loss, loss])[1])
    setting.memory[NOW] = Found(np.array([loss, min(least, loss)]))


def fallen(memory: Memory) -> bool:
    """Whether l was below its start at the last look; not of a run that did not look."""
    return BEGAN in memory and bool(memory[NOW].value[0] < memory[BEGAN].value)


def lowest(memory: Memory) -> bool:
    """Whether l was at its least at the last look."""
    return NOW in memory and bool(memory[NOW].value[0] <= memory[NOW].value[1])


def risen(memory: Memory) -> str:
    """Why the run rolls back, where l has risen at the last look; empty where it has not.

    Empty too where steps were shortened often enough.
    """
    if BEGAN not in memory or not math.isfinite(first := memory[BEGAN].value):
        return ""
    loss, least = memory[NOW].value
    high = first + RISEN * (first - least) + SMALL * abs(first)
    if loss <= high or times(memory) == MOST_RISEN:
        return ""
    return (
        f"the upper loss is {loss:.4g} on the first rows of each agent, after {least:.4g} at its "
        f"least and {first:.4g} at the start"
    )


def times(memory: Memory) -> int:
    """How often the run went back because l had risen."""
    return int(memory.get("risen", Found(0)).value)


def calm(memory: Memory, why: str, now: int, back: int) -> str:
    """From the next look on alpha is smaller, and rounds `back` to `now` are lost; what is said."""
    memory["risen"] = Found(times(memory) + 1, lasting=True)
    memory["lost"] = Found(lost(memory) + now - back, lasting=True)
    return f"{why}; back to round {back} with steps {share(memory):g} times as long"


def share(memory: Memory) -> float:
    """By how much alpha is smaller for that."""
    return float(FACTOR ** times(memory))


def size(point: Tree) -> float:
    """How large x and y are, of the agent that has the largest; agents first."""
    leaves = jax.tree.leaves(host.at_hand(point))
    with np.errstate(over="ignore"):  # large is what is asked for
        each: Any = sum((leaf.reshape(len(leaf), -1) ** 2).sum(1) for leaf in leaves)
        return float(each.max()) ** 0.5


def outgrown(now: float, start: float, before: float, fallen: bool) -> bool:
    """Whether x and y of that size are given up, though they are finite.

    `start` and `before` are their sizes at the start and in the state kept last. `fallen`: the
    objective lay below its start at the last look. Then x and y may be large, as those of small
    data are, and are lost only where they grow on.
    """
    large = LOST * (1 + start)
    return not now < (max(large, GROWN * before) if fallen else large)


def back_to(sizes: Sequence[float], start: float) -> int:
    """Which of the kept states of these sizes to go back to: the last that is not large; -1: none.

    `start` is the size of the start.
    """
    sound = [i for i, size in enumerate(sizes) if size < LARGE * (1 + start)]
    return sound[-1] if sound else -1


def factor(memory: Memory) -> float:
    """By how much steps are smaller than the first."""
    return float(memory.get("shrunk", Found(1.0)).value)


def lost(memory: Memory) -> int:
    """Rounds that the run went back on."""
    return int(memory.get("lost", Found(0)).value)


def smaller(factor: float) -> float | None:
    """The factor after this one; None if steps have been shrunk often enough."""
    next_one = factor * FACTOR
    return None if next_one < FACTOR**SHRINKS else next_one


def shrink(memory: Memory, factor: float, rounds: int) -> None:
    """From the next look on, steps are `factor` times the first; so many rounds are lost."""
    memory["shrunk"] = Found(factor, lasting=True)
    memory["lost"] = Found(lost(memory) + rounds, lasting=True)


def shrunk(algorithm: Any, memory: Memory) -> Any:
    """The algorithm with steps that are so much smaller, and L_g as much larger."""
    by = factor(memory) * share(memory)
    return raised(algorithm.shrunk(by), 1 / by) if by < 1 else algorithm
