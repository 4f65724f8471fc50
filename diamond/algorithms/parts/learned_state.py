"""State and estimates of a method that learns its step sizes."""

from typing import Any, NamedTuple

from ...core.pytrees import Tree
from .learned_step import StepMemory
from .lower_curvature import Curvature


class LearnedStepsState(NamedTuple):
    """x and y, the rest of the method's state, and the learned numbers."""

    x: Tree
    y: Tree
    rest: Any  # state of the method without x and y
    curvature: Curvature | None
    step: StepMemory | None

    @property
    def method(self) -> Any:
        """LearnedStepsState of the method."""
        return self.rest._replace(x=self.x, y=self.y)

    @property
    def z(self) -> Tree:
        """z in the state of the method, or None."""
        return getattr(self.rest, "z", None)

    @property
    def p(self) -> Tree:
        """p in the state of the method, or None."""
        return getattr(self.rest, "p", None)

    @property
    def v(self) -> Tree:
        """v in the state of the method, or None."""
        return getattr(self.rest, "v", None)

    @property
    def u(self) -> Tree:
        """u in the state of the method, or None."""
        return getattr(self.rest, "u", None)


def make_state(
    method: Any, curvature: Curvature | None, step: StepMemory | None
) -> LearnedStepsState:
    """Return the state of the wrapper around the state of the method."""
    return LearnedStepsState(method.x, method.y, method._replace(x=None, y=None), curvature, step)


class LearnedStepsEstimate(NamedTuple):
    """Gradient estimates of a stage, and the state they started from."""

    method: Any
    before: Any  # state of the method after local work
    curvature: Curvature | None
    step: StepMemory | None
