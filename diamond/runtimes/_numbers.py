"""The numbers of a run: found before its first round, and anew where the agents stand."""

from ..auto.step_sizes import fallen
from ..core.tree import Tree
from ..hypergradient.lipschitz import raised
from ..numbers.open_numbers import Found, Resolved, Setting, refreshes, resolve
from ..rounds.algorithm import Algorithm


class Numbers:
    """The algorithm that was asked for, with the numbers that the run has found for it.

    `memory` holds what was found, and travels with a checkpoint; "shrunk" in it is the factor of
    all steps, 1 until a run goes back.
    """

    def __init__(self, given: Algorithm, setting: Setting):
        self.given, self.setting = given, setting
        self._find()

    def _find(self) -> None:
        self.resolved: Resolved = resolve(self.given, self.setting)
        self.algorithm: Algorithm = self.resolved.algorithm
        if self.factor < 1:
            self.algorithm = raised(self.algorithm.shrunk(self.factor), 1 / self.factor)

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
        return fallen(self.memory)

    @property
    def factor(self) -> float:
        """By how much steps are smaller than the first."""
        return self.memory.get("shrunk", Found(1.0)).value

    def shrink(self, factor: float, lost: int) -> None:
        """From the next `renew` on, steps are `factor` times the first; so many rounds are lost."""
        self.memory["shrunk"] = Found(factor, lasting=True)
        before = self.memory.get("lost", Found(0)).value
        self.memory["lost"] = Found(before + lost, lasting=True)
