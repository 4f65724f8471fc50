"""Rollback policy of a run: which states it saves, and to which state it returns."""

from collections.abc import Callable, Mapping
from itertools import count, takewhile
from typing import Any

from ..auto import rollback_limits
from ..auto.rollback_limits import SAVE_EVERY, SAVED_STATES
from .round_program import Progress, from_named_arrays, named_arrays

RECENT_STATES, LOWEST_STATE = ".kept", ".lowest"  # names of these states in a checkpoint


def largest_norm(progress: Progress) -> float:
    """Return the largest norm of x and y over the agents."""
    return rollback_limits.largest_norm((progress.state.x, progress.state.y))


class RollbackPolicy:
    """The states to which a run can roll back.

    These are the start, the last states of rounds that are multiples of `SAVE_EVERY`, and the
    state with the lowest monitored loss. `enabled`: whether a run that breaks rolls back.
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
        return [t - t % SAVE_EVERY + SAVE_EVERY] if self.enabled else []

    def is_due(self, t: int) -> bool:
        """Return whether the state after t rounds is saved."""
        return self.enabled and t % SAVE_EVERY == 0

    def is_lost(self, progress: Progress) -> bool:
        """Return whether x and y have outgrown the limit (`rollback_limits.has_exploded`)."""
        norm = largest_norm(progress)
        previous_norm = largest_norm(self.recent[-1]) if self.recent else norm
        return rollback_limits.has_exploded(norm, largest_norm(self.start), previous_norm)

    def save_state(self, progress: Progress) -> None:
        """Save this state; the oldest state other than the start is dropped."""
        self.recent = [*self.recent, progress][-SAVED_STATES:]

    def save_lowest(self, progress: Progress) -> None:
        """Save the state with the lowest monitored loss so far."""
        self.lowest = progress

    def pop_target(self) -> Progress:
        """Return the last state where x and y were not yet large; the next time, an earlier one."""
        index = rollback_limits.rollback_index(
            [largest_norm(state) for state in self.recent], largest_norm(self.start)
        )
        target = self.recent[index] if index >= 0 else self.start
        self.recent = self.recent[: max(index, 0)]
        return target

    def pop_lowest_target(self) -> Progress:
        """Return the state with the lowest monitored loss, and drop later states."""
        self.recent = [state for state in self.recent if int(state.t) <= int(self.lowest.t)]
        return self.lowest

    def arrays(self, gather: Callable[[Progress], Progress]) -> dict[str, Any]:
        """Return the states other than the start, by name, as arrays made by `gather`."""
        states = {f"{RECENT_STATES}[{i}]": state for i, state in enumerate(self.recent)}
        if self.lowest is not self.start:
            states[LOWEST_STATE] = self.lowest
        return {
            f"{prefix}{name}": leaf
            for prefix, state in states.items()
            for name, leaf in named_arrays(gather(state)).items()
        }

    def restore(
        self,
        example: Progress,
        arrays: Mapping[str, Any],
        scatter_progress: Callable[[Progress], Progress],
    ) -> None:
        """Restore the states in `arrays`, with the shapes of `example`."""
        self.recent = [scatter_progress(state) for state in saved_states(example, arrays)]
        if f"{LOWEST_STATE}.t" in arrays:
            self.lowest = scatter_progress(state_named(LOWEST_STATE, example, arrays))


def saved_states(example: Progress, arrays: Mapping[str, Any]) -> list[Progress]:
    """Return the states of the last rounds in `arrays`, with the shapes of `example`."""
    present = takewhile(lambda i: f"{RECENT_STATES}[{i}].t" in arrays, count())
    return [state_named(f"{RECENT_STATES}[{i}]", example, arrays) for i in present]


def state_named(prefix: str, example: Progress, arrays: Mapping[str, Any]) -> Progress:
    """Return the state in `arrays` whose names begin with `prefix`."""
    names = named_arrays(example)
    return from_named_arrays(example, {name: arrays[f"{prefix}{name}"] for name in names})
