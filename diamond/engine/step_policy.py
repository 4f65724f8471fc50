"""Step-size policy of a run: its algorithm with the numbers estimated during the run."""

from ..auto import loss_monitor
from ..core.pytrees import Tree
from ..interface.round_interface import Algorithm
from ..schedules.deferred import (
    ResolvedValue,
    Resolved,
    ResolutionContext,
    reestimation_rounds,
    resolve,
)


class StepPolicy:
    """The requested algorithm, with the numbers that the run has estimated for it.

    `memory` holds the estimates and the history of the loss monitor (`auto.watch`). It is part of a
    checkpoint.
    """

    def __init__(self, given: Algorithm, setting: ResolutionContext):
        self.given, self.setting = given, setting
        self._resolve()

    def _resolve(self) -> None:
        self.resolved: Resolved = resolve(self.given, self.setting)
        self.algorithm: Algorithm = loss_monitor.scale_steps(self.resolved.algorithm, self.memory)

    @property
    def memory(self) -> dict[str, ResolvedValue]:
        """Estimates by name."""
        return self.setting.memory

    def due(self, t: int) -> bool:
        """Return whether numbers are estimated again after t rounds."""
        return self.setting.changes and t in reestimation_rounds(t)

    def stops(self, t: int, rounds: int) -> list[int]:
        """Return later rounds in which numbers are estimated again."""
        return [r for r in reestimation_rounds(rounds) if r > t] if self.setting.changes else []

    def reestimate(self, x: Tree, y: Tree, t: int, forget: bool = False) -> None:
        """Estimate numbers again after t rounds at x and y; `forget` those of a broken run."""
        self.setting = self.setting.at(x, y, forget, t)
        self._resolve()

    @property
    def loss_has_decreased(self) -> bool:
        """Whether the monitored loss was below its start at the last check."""
        return loss_monitor.fallen(self.memory)

    @property
    def loss_is_lowest(self) -> bool:
        """Whether the monitored loss was at its minimum at the last check."""
        return loss_monitor.lowest(self.memory)

    @property
    def loss_increase(self) -> str:
        """Return why the run must roll back if the monitored loss has risen, else ""."""
        return loss_monitor.risen(self.memory)

    @property
    def scale(self) -> float:
        """Factor of all steps after rollbacks of a broken run."""
        return loss_monitor.factor(self.memory)

    @property
    def rounds_rolled_back(self) -> int:
        """Number of rounds that were rolled back."""
        return loss_monitor.lost(self.memory)

    def shorten(self, factor: float, rounds: int) -> None:
        """Scale steps to `factor` times the first ones, from the next `reestimate` on.

        Args:
            factor: factor relative to the steps at the start of the run.
            rounds: number of rounds that are rolled back.
        """
        loss_monitor.shrink(self.memory, factor, rounds)

    def record_increase(self, now: int, target: int) -> str:
        """Record a rollback from round `now` to `target` for a risen loss; return its message."""
        return loss_monitor.calm(self.memory, self.loss_increase, now, target)
