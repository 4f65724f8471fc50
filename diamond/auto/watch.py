"""A watch on the objective, and the smaller steps of a run that goes back.

Where an agent looks it finds l_i(x_i) as well, always on the same rows; l is their mean. Where

    l > l_0 + RISEN (l_0 - least) + SMALL |l_0|,   l_0: at the start, least: of all looks

l has risen above its start by more than its noise. No smaller step comes back from where no
gradient leads back, as from saturated units: the run goes back to the state of the look with the
least l, or to the start, and on with an alpha FACTOR times as large; beta stays, since y has to
keep up with x. Agents that disagree have a lower l than their mean: only the start, where they do
not, is to be compared with. Of a lower level in common nobody alone knows l; among more than 64
agents it is not told. There nothing is watched.

All of it is kept among the numbers that a run has found, so that all who have the same numbers do
the same: "risen", how often; "shrunk", the factor of all steps of a run that was lost, its x or y
no longer finite, which goes back as well (`runtimes._rewind`); and "lost", rounds gone back on.
"""

import math
from collections.abc import MutableMapping, Sequence
from typing import Any

import jax
import numpy as np

from ..core import host
from ..core.tree import Tree
from ..hypergradient.lipschitz import raised
from ..numbers.open_numbers import Found, Setting

RISEN, SMALL = 0.1, 1e-3  # of what l has fallen, and of l: a rise beyond its noise
FACTOR, SHRINKS = 0.25, 8  # of the steps each time, and how often at most
EVERY, RECENT = 100, 2  # the states of so many last multiples of 100 rounds are kept, to go back to
LARGE = 1e2  # times the start: x and y of a state that is not to go back to
LOST = 1e6  # times the start: given up, though finite
GROWN = 3.0  # times the state kept before: what is large and grows so is lost, and not only large
Memory = MutableMapping[str, Found]
BEGAN, NOW = "_began", "_losses"  # l at the start; here, and the least since the run went back


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
    """What to say where l was above its start at the last look; empty where there is nothing to do.

    That is where it was not, and where alpha has been shrunk often enough.
    """
    if BEGAN not in memory or not math.isfinite(first := memory[BEGAN].value):
        return ""
    loss, least = memory[NOW].value
    high = first + RISEN * max(first - least, 0.0) + SMALL * abs(first)
    if loss <= high or times(memory) == SHRINKS:
        return ""
    return (
        f"the upper loss is {loss:.4g} on the first rows of each agent, above the {first:.4g} that "
        f"it began at"
    )


def times(memory: Memory) -> int:
    """How often the run went back because l had risen."""
    return int(memory.get("risen", Found(0)).value)


def calm(memory: Memory, why: str, now: int, back: int) -> str:
    """From the next look on alpha is smaller, and rounds `back` to `now` are lost; what is said."""
    memory["risen"] = Found(times(memory) + 1, lasting=True)
    memory["lost"] = Found(lost(memory) + now - back, lasting=True)
    return f"{why}; back to round {back} with alpha {share(memory):g} times what it would be"


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
    by = factor(memory)
    return raised(algorithm.shrunk(by), 1 / by) if by < 1 else algorithm
