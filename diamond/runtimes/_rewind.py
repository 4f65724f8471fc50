"""Going back after divergence: to which state, and with how much smaller steps."""

from collections.abc import Callable, Mapping
from itertools import count, takewhile
from typing import Any

import jax
import numpy as np

from ..core import host, tree
from ._round import Progress

EVERY = 100  # the state of every so many rounds is kept
LARGE, LOST = 1e2, 1e6  # times the start: not to go back to; given up, though finite
GROWN = 3.0  # times the state kept before: what is large and grows so is lost, and not only large
RECENT = 2  # states kept beside the start
SHRINKS = 8  # how often, at most
FACTOR = 0.25  # by how much each time
NAME = ".kept"  # among the arrays of a run, those of states to go back to


def size(progress: Progress) -> float:
    """How large x and y of all agents are together."""
    leaves = jax.tree.leaves(host.at_hand((progress.state.x, progress.state.y)))
    with np.errstate(over="ignore"):  # large is what is asked for
        return float(sum((a**2).sum() for a in leaves)) ** 0.5


class Rewind:
    """The start of a run and its last states, each of a round that is a multiple of `EVERY`."""

    def __init__(self, begin: Progress, recent: list[Progress]):
        self.begin, self.recent = begin, recent

    def marks(self, t: int) -> bool:
        """Whether the state after t rounds is one to keep."""
        return t % EVERY == 0

    def lost(self, progress: Progress, fallen: bool = False) -> bool:
        """Whether x and y are so large that the run is given up, though they are finite.

        `fallen`: the objective lay below its start at the last look. Then x and y may be large, as
        those of small data are, and are lost only where they grow on.
        """
        now, large = size(progress), LOST * (1 + size(self.begin))
        before = size(self.recent[-1]) if self.recent else now
        return not now < (max(large, GROWN * before) if fallen else large)

    def keep(self, progress: Progress) -> None:
        """Keep this state, and forget the oldest but the start."""
        self.recent = [*self.recent, progress][-RECENT:]

    def back(self) -> Progress:
        """The last state where x and y were not yet large; the next time, an earlier one."""
        while self.recent:
            last = self.recent.pop()
            if size(last) < LARGE * (1 + size(self.begin)):
                return last
        return self.begin

    def smaller(self, factor: float) -> float | None:
        """The factor of the steps after this one; None if it has been tried often enough."""
        next_one = factor * FACTOR
        return None if next_one < FACTOR**SHRINKS else next_one

    def arrays(self, whole: Callable[[Progress], Progress]) -> dict[str, Any]:
        """The states beside the start, by name; `whole` makes them arrays of this process."""
        return {
            f"{NAME}[{i}]{name}": leaf
            for i, kept in enumerate(self.recent)
            for name, leaf in tree.named(whole(kept)).items()
        }


def stored(first: Progress, arrays: Mapping[str, Any]) -> list[Progress]:
    """The states to go back to that `arrays` hold, each like `first`."""
    of = lambda i: {name: arrays[f"{NAME}[{i}]{name}"] for name in tree.named(first)}
    there = takewhile(lambda i: f"{NAME}[{i}].t" in arrays, count())
    return [tree.like(first, of(i)) for i in there]
