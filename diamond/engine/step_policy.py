"""The step-size policy of a run: its algorithm, with the numbers that were left to the run."""

from ..auto import watch
from ..core.tree import Tree
from ..numbers.open_numbers import Found, Resolved, Setting, refreshes, resolve
from ..rounds.algorithm import Algorithm


class StepPolicy:
    """The algorithm that was asked for, with the numbers that the run has estimated for it.

    `memory` holds the estimates and what the loss monitor (`auto.watch`) has seen. It is part of a
    checkpoint.
    """

    def __init__(self, given: Algorithm, setting: Setting):
        self.given, self.setting = given, setting
        self._resolve()

    def _resolve(self) -> None:
        self.resolved: Resolved = resolve(self.given, self.setting)
        self.algorithm: Algorithm = watch.shrunk(self.resolved.algorithm, self.memory)

    @property
    def memory(self) -> dict[str, Found]:
        """Estimates by name."""
        return self.setting.memory

    def due(self, t: int) -> bool:
        """Whether numbers are estimated again after t rounds."""
        return self.setting.changes and t in refreshes(t)

    def stops(self, t: int, rounds: int) -> list[int]:
        """Later rounds in which numbers are estimated again."""
        return [r for r in refreshes(rounds) if r > t] if self.setting.changes else []

    def reestimate(self, x: Tree, y: Tree, t: int, forget: bool = False) -> None:
        """Estimate numbers again after t rounds, at x and y; `forget` those of a lost run."""
        self.setting = self.setting.at(x, y, forget, t)
        self._resolve()

    @property
    def loss_has_decreased(self) -> bool:
        """Whether the monitored loss was below its start at the last look."""
        return watch.fallen(self.memory)

    @property
    def loss_is_lowest(self) -> bool:
        """Whether the monitored loss was at its least at the last look."""
        return watch.lowest(self.memory)

    @property
    def loss_increase(self) -> str:
        """Why the run must roll back, where the monitored loss has risen; else empty."""
        return watch.risen(self.memory)

    @property
    def scale(self) -> float:
        """The factor of all steps after rollbacks of a lost run."""
        return watch.factor(self.memory)

    @property
    def rounds_rolled_back(self) -> int:
        """Rounds that were made and rolled back."""
        return watch.lost(self.memory)

    def shorten(self, factor: float, rounds: int) -> None:
        """From the next `reestimate` on, steps are `factor` times the first.

        Args:
            factor: of the steps that the run began with.
            rounds: rounds that are rolled back.
        """
        watch.shrink(self.memory, factor, rounds)

    def record_increase(self, now: int, target: int) -> str:
        """Note a rollback from round `now` to `target` for an increased loss; its message."""
        return watch.calm(self.memory, self.loss_increase, now, target)
