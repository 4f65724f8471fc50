"""Base class of methods that define a single stage themselves."""

from dataclasses import replace
from typing import Any, ClassVar

from ...core.pytrees import Number
from ...interface.round_interface import Method
from ...problem import Problem
from ...schedules.learned import Learned, learned_names
from ...schedules.step_schedules import Scaled
from .learnable import LearnableMethod, LearnableStage
from .learned_algorithm import with_learned_steps


class SingleStageMethod(LearnableMethod, LearnableStage):
    """A method whose round is one stage, the method itself, sent after it is computed."""

    repeats = 1
    hessian_batches = 0
    sends_before_gradient = False
    SCHEDULES: ClassVar[tuple[str, ...]] = ("alpha", "beta")  # schedules among its fields
    networks = "balanced"
    needs_strong_convexity = True
    about: ClassVar[str]  # directions; estimator; moves; plan; exchanges; calls

    @property
    def stages(self) -> tuple["SingleStageMethod"]:
        return (self,)

    def schedule_values(self, t: Number) -> dict[str, Number]:
        return {name: getattr(self, name)(t) for name in self.SCHEDULES}

    def with_scaled_steps(self, factor: Number) -> Any:
        """Return the method with steps `factor` times as long, except learned steps."""
        steps = {name: getattr(self, name) for name in ("alpha", "beta")}
        scaled = {name: Scaled(factor, s) for name, s in steps.items() if not learned_names(s)}
        return replace(self, **scaled)  # type: ignore[type-var]

    def specialize(self, problem: Problem) -> Method:
        """Specialize the method for this problem, with learned numbers if it left some open."""
        return with_learned_steps(self, problem, 1.0)


floor = Learned("floor")  # lower bound of the eigenvalues of an estimated g_yy
