"""What a method and its stages tell `LearnedStepsAlgorithm`, which learns their numbers."""

from typing import Any

from ...core.pytrees import Number, Tree
from ...core.sampling import Sample
from ...interface.round_interface import Estimate, Method, Stage, State


class LearnableStage(Stage):
    """A stage whose direction of x the rule of steps can see."""

    @property
    def moves_x(self) -> bool:
        """Whether the stage moves x."""
        return True

    def x_direction(self, estimate: Estimate, state: State) -> Tree:
        """Return the direction of x."""
        raise NotImplementedError

    def lower_gradient(self, estimate: Estimate) -> Tree | None:
        """Return g_y on the sample of this round; None: the estimate does not have it."""
        return None

    def tracker(self, state: State) -> Tree | None:
        """Return the network's mean direction of x in the previous round; None: not tracked."""
        return None


class LearnableMethod(Method):
    """A method whose numbers may be learned during the run."""

    @property
    def stages(self) -> tuple[LearnableStage, ...]:
        """Stages of a round, in their order."""
        raise NotImplementedError

    @property
    def statistics_weight(self) -> float:
        """Weight of a round in the statistics of steps: below 1 where directions are noisy."""
        return 1.0

    def smoothing_delay(self, t: Number) -> Number:
        """Return the number of rounds by which averaged directions lag."""
        return 0.0

    def auxiliary(self, state: Any) -> Tree | None:
        """Return z if z solves g_yy z = f_y; None: the method has no such z."""
        return None

    def with_lower_level(self, state: Any, y: Tree, z: Tree) -> Any:
        """Return the state with solved y and z."""
        return state._replace(y=y)

    def curvature_sample(self, sample: Sample) -> Sample:
        """Return the rows for learning curvature."""
        return sample
