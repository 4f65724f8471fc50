"""Going back, where a run is lost or its objective has risen: the states to go back to."""

from collections.abc import Callable, Mapping
from itertools import count, takewhile
from typing import Any

from ..auto import watch
from ..auto.watch import EVERY, RECENT
from ..core import tree
from .round import Progress
from .step_policy import Numbers

NAME, LOWEST = ".kept", ".lowest"  # among the arrays of a run, those of states to go back to


def size(progress: Progress) -> float:
    """How large x and y of the agent are that has the largest."""
    return watch.size((progress.state.x, progress.state.y))


class Rewind:
    """The start of a run; its last states, each of a round that is a multiple of `EVERY`; and that

    of the look where the objective was lowest.
    """

    def __init__(self, begin: Progress, recent: list[Progress], lowest: Progress | None = None):
        self.begin, self.recent, self.lowest = begin, recent, lowest or begin

    def marks(self, t: int) -> bool:
        """Whether the state after t rounds is one to keep."""
        return t % EVERY == 0

    def lost(self, progress: Progress, fallen: bool = False) -> bool:
        """Whether x and y are so large that the run is given up: see `watch.outgrown`."""
        now = size(progress)
        before = size(self.recent[-1]) if self.recent else now
        return watch.outgrown(now, size(self.begin), before, fallen)

    def keep(self, progress: Progress) -> None:
        """Keep this state, and forget the oldest but the start."""
        self.recent = [*self.recent, progress][-RECENT:]

    def back(self) -> Progress:
        """The last state where x and y were not yet large; the next time, an earlier one."""
        which = watch.back_to([size(kept) for kept in self.recent], size(self.begin))
        back = self.recent[which] if which >= 0 else self.begin
        self.recent = self.recent[: max(which, 0)]
        return back

    def low(self, numbers: Numbers, after: Progress) -> tuple[Progress, str]:
        """From `after`, where the objective has risen, to the state where it was lowest; and what

        is said of it. What came after that state is forgotten, but stays spent.
        """
        back = int(self.lowest.t)
        self.recent = [kept for kept in self.recent if int(kept.t) <= back]
        said = watch.calm(numbers.memory, numbers.risen, int(after.t), back)
        return self.lowest._replace(spent=after.spent), said

    def arrays(self, whole: Callable[[Progress], Progress]) -> dict[str, Any]:
        """The states beside the start, by name; `whole` makes them arrays of this process."""
        kept = {f"{NAME}[{i}]": state for i, state in enumerate(self.recent)}
        if self.lowest is not self.begin:
            kept[LOWEST] = self.lowest
        return {
            f"{where}{name}": leaf
            for where, state in kept.items()
            for name, leaf in tree.named(whole(state)).items()
        }


def stored(first: Progress, arrays: Mapping[str, Any]) -> list[Progress]:
    """The states of the last rounds that `arrays` hold, each like `first`."""
    there = takewhile(lambda i: f"{NAME}[{i}].t" in arrays, count())
    return [_named(f"{NAME}[{i}]", first, arrays) for i in there]


def restored(
    begin: Progress,
    first: Progress,
    arrays: Mapping[str, Any],
    place: Callable[[Progress], Progress],
) -> Rewind:
    """What `Rewind.arrays` told of, each state like `first` and then laid out by `place`."""
    recent = [place(kept) for kept in stored(first, arrays)]
    low = place(_named(LOWEST, first, arrays)) if f"{LOWEST}.t" in arrays else None
    return Rewind(begin, recent, low)


def _named(where: str, first: Progress, arrays: Mapping[str, Any]) -> Progress:
    found: Progress = tree.like(first, {n: arrays[f"{where}{n}"] for n in tree.named(first)})
    return found
