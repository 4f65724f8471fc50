"""Choice of `diamond.solve`: quasi-Newton steps where they apply, else learned steps."""

from dataclasses import dataclass, field, fields, replace
from typing import Any

from ...auto.adaptive_optimizers import REST
from ...core import pytrees
from ...problem import Problem
from ...schedules.deferred import agent_count
from ...schedules.step_schedules import AtLeast, Delayed
from .._composition import WEIGHT
from .communication import tracking
from .composed import ComposedAlgorithm
from .directions import penalty, penalty_on_half
from .gradient_estimators import Average
from .opening import LAM, first_order_opening
from .quasi_newton import QuasiNewton, most_rows

# Share of the whole decrease that one more step may gain at the end.
TOLERANCES = {"rough": 1e-3, "normal": 1e-5, "exact": 1e-7}


@pytrees.pytree
@dataclass(frozen=True)
class LearnedSolver(ComposedAlgorithm):
    """A composed method that also tracks y and z if all agents share them."""

    needs_strong_convexity = False  # it takes other directions where there is none

    def specialize(self, problem: Problem) -> Any:
        """Return the method for this kind of lower level."""
        method: ComposedAlgorithm = self
        if problem.lower_level != "none" and not problem.has_lower_solution:
            directions = penalty_on_half(LAM) if problem.is_large else penalty(LAM)
            estimator = Average(AtLeast(0.1, Delayed(WEIGHT, REST)))
            method = replace(self, directions=directions, estimator=estimator)
        if problem.lower_level == "common" and self.y is not None and self.z is not None:
            y, z = (
                replace(self.y, communication=tracking()),
                replace(self.z, communication=tracking()),
            )
            method = replace(method, y=y, z=z)
        return ComposedAlgorithm.specialize(method, problem)


@pytrees.pytree
@dataclass(frozen=True)
class Solver(LearnedSolver):
    """Quasi-Newton steps where they apply, else learned steps."""

    steps: str = field(default="auto", metadata={"static": True})
    accuracy: float = field(default=TOLERANCES["normal"], metadata={"static": True})
    obstacle: str = field(default="", metadata={"static": True})  # to quasi-Newton steps

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.steps not in ("auto", "learned"):
            raise ValueError(f"steps = {self.steps!r} of solve: give 'auto' or 'learned'")

    def without_exact_means(self, obstacle: str) -> "Solver":
        """Return the method for a run without exact means, for this reason in a few words."""
        return replace(self, obstacle=self.obstacle or obstacle)

    def obstacle_to(self, problem: Problem) -> str:
        """Return why quasi-Newton steps do not apply to a problem, in a few words, or ""."""
        has_lower = problem.lower_level != "none"
        obstacles = {
            "learned steps were asked for": self.steps == "learned",
            "its gradients are not plain averages": not isinstance(self.estimator, Average),
            "its rows are streams without end": bool(problem.streams),
            "its upper level has a proximal term": problem.prox is not None,
            "its lower level is large": has_lower and problem.is_large,
            "its lower level is not strongly convex": has_lower and not problem.convex,
            self.obstacle: bool(self.obstacle),
        }
        return next((reason for reason, holds in obstacles.items() if holds), "")

    def specialize(self, problem: Problem) -> Any:
        """Return the method for this problem."""
        if not self.obstacle_to(problem):
            level = problem.lower_level
            has_minima = level == "personal" and problem.starts_at_random
            opening = first_order_opening(self.batch) if has_minima else None
            return QuasiNewton(most_rows, agent_count, self.accuracy, opening, self.batch, level)
        parts = {part.name: getattr(self, part.name) for part in fields(LearnedSolver)}
        return LearnedSolver(**parts).specialize(problem)


def as_tolerance(accuracy: float | str) -> float:
    """Return the tolerance of an accuracy given as a word or a number."""
    if isinstance(accuracy, str):
        if accuracy not in TOLERANCES:
            raise ValueError(
                f"accuracy = {accuracy!r}: give one of {', '.join(TOLERANCES)}, or a number"
            )
        return TOLERANCES[accuracy]
    if not 0 < accuracy < 1:
        raise ValueError(f"accuracy = {accuracy}: give a number between 0 and 1, such as 1e-5")
    return float(accuracy)
