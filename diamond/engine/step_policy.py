"""Step-size policy of a run: its algorithm with the numbers estimated during the run."""

from ..auto import loss_monitor
from ..core.pytrees import Tree
from ..interface.round_interface import Algorithm
from ..schedules import deferred


class StepPolicy:
    """The requested algorithm, with the numbers that the run has estimated for it.

    `memory` holds the estimates and the history of the loss monitor (`auto.loss_monitor`). It is
    part of a checkpoint.
    """

    def __init__(self, requested: Algorithm, context: deferred.ResolutionContext):
        self.requested, self.context = requested, context
        self._resolve()

    def _resolve(self) -> None:
        self.resolved: deferred.ResolvedAlgorithm = deferred.resolve(self.requested, self.context)
        self.algorithm: Algorithm = loss_monitor.scale_steps(self.resolved.algorithm, self.memory)

    @property
    def memory(self) -> dict[str, deferred.ResolvedValue]:
        """Estimates by name."""
        return self.context.memory

    def is_due(self, t: int) -> bool:
        """Return whether numbers are estimated again after t rounds."""
        return self.context.needs_reestimation and t in deferred.reestimation_rounds(t)

    def stops(self, t: int, rounds: int) -> list[int]:
        """Return later rounds in which numbers are estimated again."""
        later = [r for r in deferred.reestimation_rounds(rounds) if r > t]
        return later if self.context.needs_reestimation else []

    def reestimate(self, x: Tree, y: Tree, t: int, forget: bool = False) -> None:
        """Estimate numbers again after t rounds at x and y; `forget` those of a broken run."""
        self.context = self.context.after_rounds(x, y, forget, t)
        self._resolve()

    @property
    def monitor(self) -> loss_monitor.MonitorState:
        """What the loss monitor has seen, and how often the run rolled back."""
        return loss_monitor.MonitorState.read(self.memory)
