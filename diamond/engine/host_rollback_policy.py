"""Rollback policy of a run whose y is large: its states are stored on the host."""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..auto import rollback_limits
from ..core import host_transfer
from ..core.pytrees import Tree
from ..schedules.deferred import ResolutionContext
from .rollback_policy import LOWEST_STATE, RollbackPolicy, saved_states, state_named
from .round_program import Progress


class HostRollbackPolicy(RollbackPolicy):
    """Rollback policy with states as host arrays, which rounds cannot overwrite.

    Nothing is stored for a run that never rolls back. Norms are computed once, on the device.
    """

    def __init__(self, start: Progress, backend: Any, enabled: bool, context: ResolutionContext):
        self.backend = backend
        self.is_used = enabled or context.needs_reestimation
        self.start_norm = norm_on_device(start) if self.is_used else 0.0
        self.norms: list[float] = []  # of the recent states
        self.latest: tuple[Any, Progress] | None = None  # the last stored state, and its copy
        stored = self._store(start) if self.is_used else start._replace(state=None)
        super().__init__(stored, [], enabled=enabled)

    def is_lost(self, progress: Progress) -> bool:
        norm = norm_on_device(progress)
        previous_norm = self.norms[-1] if self.norms else norm
        return rollback_limits.has_exploded(norm, self.start_norm, previous_norm)

    def save_state(self, progress: Progress) -> None:
        super().save_state(self._store(progress))
        self.norms = [*self.norms, norm_on_device(progress)][-len(self.recent) :]

    def save_lowest(self, progress: Progress) -> None:
        if self.is_used:
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
        loaded: Progress = self.backend.scatter_progress(stored)
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
