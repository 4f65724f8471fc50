"""Rollback policy of a run: which states it saves, and to which state it returns."""

from collections.abc import Callable, Mapping
from itertools import count, takewhile
from typing import Any

from ..auto import loss_monitor
from ..auto.loss_monitor import EVERY, RECENT
from ..core import pytrees
from .round_program import Progress

NAME, LOWEST = ".kept", ".lowest"  # names of these states in a checkpoint


def size(progress: Progress) -> float:
    """Return the largest norm of x and y over the agents."""
    return loss_monitor.size((progress.state.x, progress.state.y))


class RollbackPolicy:
    """The states to which a run can roll back.

    These are the start, the last states of rounds that are multiples of `EVERY`, and the state with
    the lowest monitored loss. `enabled`: whether a run that breaks rolls back.
    """

    def __init__(
        self,
        start: Progress,
        recent: list[Progress],
        lowest: Progress | None = None,
        enabled: bool = True,
    ):
        self.start, self.recent, self.lowest = start, recent, lowest or start
        self.enabled = enabled

    def stops(self, t: int) -> list[int]:
        """Return the next round whose state is saved."""
        return [t - t % EVERY + EVERY] if self.enabled else []

    def is_due(self, t: int) -> bool:
        """Return whether the state after t rounds is saved."""
        return self.enabled and t % EVERY == 0

    def is_lost(self, progress: Progress, loss_has_decreased: bool = False) -> bool:
        """Return whether x and y have outgrown the limit (`watch.outgrown`)."""
        now = size(progress)
        before = size(self.recent[-1]) if self.recent else now
        return loss_monitor.outgrown(now, size(self.start), before, loss_has_decreased)

    def keep(self, progress: Progress) -> None:
        """Save this state; the oldest state other than the start is dropped."""
        self.recent = [*self.recent, progress][-RECENT:]

    def target(self) -> Progress:
        """Return the last state where x and y were not yet large; the next time, an earlier one."""
        which = loss_monitor.back_to([size(state) for state in self.recent], size(self.start))
        target = self.recent[which] if which >= 0 else self.start
        self.recent = self.recent[: max(which, 0)]
        return target

    def lowest_target(self) -> Progress:
        """Return the state with the lowest monitored loss, and drop later states."""
        self.recent = [state for state in self.recent if int(state.t) <= int(self.lowest.t)]
        return self.lowest

    def arrays(self, whole: Callable[[Progress], Progress]) -> dict[str, Any]:
        """Return the states other than the start, by name, as arrays made by `whole`."""
        states = {f"{NAME}[{i}]": state for i, state in enumerate(self.recent)}
        if self.lowest is not self.start:
            states[LOWEST] = self.lowest
        return {
            f"{where}{name}": leaf
            for where, state in states.items()
            for name, leaf in pytrees.named(whole(state)).items()
        }

    def restore(
        self,
        example: Progress,
        arrays: Mapping[str, Any],
        place: Callable[[Progress], Progress],
    ) -> None:
        """Restore the states in `arrays`, with the shapes of `example`, laid out by `place`."""
        self.recent = [place(state) for state in stored(example, arrays)]
        if f"{LOWEST}.t" in arrays:
            self.lowest = place(_named(LOWEST, example, arrays))


def stored(example: Progress, arrays: Mapping[str, Any]) -> list[Progress]:
    """Return the states of the last rounds in `arrays`, with the shapes of `example`."""
    present = takewhile(lambda i: f"{NAME}[{i}].t" in arrays, count())
    return [_named(f"{NAME}[{i}]", example, arrays) for i in present]


def _named(where: str, example: Progress, arrays: Mapping[str, Any]) -> Progress:
    state: Progress = pytrees.like(
        example, {n: arrays[f"{where}{n}"] for n in pytrees.named(example)}
    )
    return state
