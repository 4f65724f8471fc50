"""The numbers of a run: found before its first round, and anew where the agents stand."""

from ..auto import watch
from ..core.tree import Tree
from ..numbers.open_numbers import Found, Resolved, Setting, refreshes, resolve
from ..rounds.algorithm import Algorithm


class Numbers:
    """The algorithm that was asked for, with the numbers that the run has found for it.

    `memory` holds what was found, and travels with a checkpoint, with what `auto.watch` has seen.
    """

    def __init__(self, given: Algorithm, setting: Setting):
        self.given, self.setting = given, setting
        self._find()

    def _find(self) -> None:
        self.resolved: Resolved = resolve(self.given, self.setting)
        self.algorithm: Algorithm = watch.shrunk(self.resolved.algorithm, self.memory)

    @property
    def memory(self) -> dict[str, Found]:
        """What was found, by name."""
        return self.setting.memory

    @property
    def change(self) -> bool:
        """Whether there are numbers that are found anew on the way."""
        return self.setting.changes

    def due(self, t: int) -> bool:
        """Whether to find them anew after t rounds."""
        return self.change and t in refreshes(t)

    def renew(self, x: Tree, y: Tree, forget: bool = False, t: int = 0) -> None:
        """Find numbers anew after t rounds, at x and y; `forget` those of a run that was lost."""
        self.setting = self.setting.at(x, y, forget, t)
        self._find()

    @property
    def fallen(self) -> bool:
        """Whether the objective lay below its start where the agents looked last."""
        return watch.fallen(self.memory)

    @property
    def lowest(self) -> bool:
        """Whether the objective was at its least there."""
        return watch.lowest(self.memory)

    @property
    def risen(self) -> str:
        """What to say where the objective lay above its start there, and the run is to go back."""
        return watch.risen(self.memory)

    @property
    def factor(self) -> float:
        """By how much steps are smaller than the first."""
        return watch.factor(self.memory)

    @property
    def lost(self) -> int:
        """Rounds that the run went back on."""
        return watch.lost(self.memory)

    def shrink(self, factor: float, lost: int) -> None:
        """From the next `renew` on, steps are `factor` times the first; so many rounds are lost."""
        watch.shrink(self.memory, factor, lost)
