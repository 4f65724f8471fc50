"""Rollback policy of a run: which states it saves, and to which state it returns."""

from collections.abc import Callable, Mapping
from itertools import count, takewhile
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..auto import rollback_limits
from ..auto.rollback_limits import SAVE_EVERY, SAVED_STATES
from ..core import host_transfer
from ..core.pytrees import Tree
from ..schedules.deferred import ResolutionContext
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

    def __init__(self, start: Progress, recent: list[Progress], enabled: bool = True):
        self.start, self.recent, self.lowest, self.enabled = start, recent, start, enabled

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


class HostRollbackPolicy(RollbackPolicy):
    """Rollback policy with states as host arrays, which rounds cannot overwrite.

    Nothing is stored for a run that never rolls back. Round 0 is not stored: `make_start` makes
    it again. It also stands for the state of round 1, whose loss is the first that is monitored.
    Norms are computed once, on the device.
    """

    def __init__(
        self,
        start: Progress,
        backend: Any,
        enabled: bool,
        context: ResolutionContext,
        *,
        make_start: Callable[[], Progress],
    ):
        self.backend, self.make_start = backend, make_start
        self.is_used = enabled or context.needs_reestimation
        self.start_norm = norm_on_device(start) if self.is_used else 0.0
        self.norms: list[float] = []  # of the recent states
        self.latest: tuple[Any, Progress] | None = None  # the last stored state, and its copy
        is_later = self.is_used and int(start.t) > 0  # the start after a change of members
        nothing: Any = None
        unstored = Progress(host_transfer.to_device(0, np.int32), nothing, nothing)
        stored = self._store(start) if is_later else unstored
        super().__init__(stored, [], enabled=enabled)

    def is_lost(self, progress: Progress) -> bool:
        norm = norm_on_device(progress)
        previous_norm = self.norms[-1] if self.norms else norm
        return rollback_limits.has_exploded(norm, self.start_norm, previous_norm)

    def save_state(self, progress: Progress) -> None:
        super().save_state(self._store(progress))
        self.norms = [*self.norms, norm_on_device(progress)][-len(self.recent) :]

    def save_lowest(self, progress: Progress) -> None:
        if self.is_used and int(progress.t) > 1:
            super().save_lowest(self._store(progress))

    def pop_target(self) -> Progress:
        index = rollback_limits.rollback_index(self.norms, self.start_norm)
        target = self.recent[index] if index >= 0 else self.start
        self.recent, self.norms = self.recent[: max(index, 0)], self.norms[: max(index, 0)]
        return self._load(target)

    def pop_lowest_target(self) -> Progress:
        target = super().pop_lowest_target()
        self.norms = self.norms[: len(self.recent)]
        return self._load(target)

    def arrays(self, gather: Callable[[Progress], Progress]) -> dict[str, Any]:
        return super().arrays(lambda state: state)

    def restore(
        self,
        example: Progress,
        arrays: Mapping[str, Any],
        scatter_progress: Callable[[Progress], Progress],
    ) -> None:
        self.recent = [host_transfer.copy_to_host(s) for s in saved_states(example, arrays)]
        self.norms = [norm_on_device(state) for state in self.recent]
        if f"{LOWEST_STATE}.t" in arrays:
            self.lowest = host_transfer.copy_to_host(state_named(LOWEST_STATE, example, arrays))

    def _store(self, progress: Progress) -> Progress:
        """Return a host copy; a state that is stored twice in a round is copied once."""
        if self.latest is None or self.latest[0] is not progress.state:
            copy: Progress = host_transfer.copy_to_host(self.backend.progress_of_run(progress, 0))
            self.latest = progress.state, copy
        return self.latest[1]

    def _load(self, stored: Progress) -> Progress:
        is_made = stored.state is None
        loaded: Progress = self.make_start() if is_made else self.backend.scatter_progress(stored)
        return loaded


def norm_on_device(progress: Progress) -> float:
    """Return the largest norm of x and y over the agents, without a copy on the host."""
    return float(_largest_norm((progress.state.x, progress.state.y)))


@jax.jit
def _largest_norm(point: Tree) -> jax.Array:
    squares = [
        jnp.sum(jnp.square(leaf.astype(jnp.float32)), axis=tuple(range(1, np.ndim(leaf))))
        for leaf in jax.tree.leaves(point)
    ]
    return jnp.sqrt(jnp.max(sum(squares[1:], squares[0])))


def saved_states(example: Progress, arrays: Mapping[str, Any]) -> list[Progress]:
    """Return the states of the last rounds in `arrays`, with the shapes of `example`."""
    present = takewhile(lambda i: f"{RECENT_STATES}[{i}].t" in arrays, count())
    return [state_named(f"{RECENT_STATES}[{i}]", example, arrays) for i in present]


def state_named(prefix: str, example: Progress, arrays: Mapping[str, Any]) -> Progress:
    """Return the state in `arrays` whose names begin with `prefix`."""
    names = named_arrays(example)
    return from_named_arrays(example, {name: arrays[f"{prefix}{name}"] for name in names})
