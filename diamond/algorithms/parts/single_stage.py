"""Base class of methods that define a single stage themselves."""

from dataclasses import replace
from typing import Any, ClassVar

from ...core.pytrees import Tree
from ...core.sampling import Sample
from ...problem import Problem
from ...schedules.learned import Learned, learned_names
from ...schedules.step_schedules import Number, Scaled
from .learned_algorithm import with_learned_steps


class SingleStageMethod:
    """A method whose round is one stage, the method itself, sent after it is computed."""

    repeats: ClassVar[int] = 1
    hessian_batches: ClassVar[int] = 0
    sends_before_gradient: ClassVar[bool] = False
    STEPS: ClassVar[tuple[str, ...]] = ("alpha", "beta")  # schedules among its fields
    networks: ClassVar[str] = "balanced"  # widest kind of network on which it is correct
    needs_strong_convexity: ClassVar[bool] = True
    about: ClassVar[str]  # directions; estimator; moves; plan; exchanges; calls

    @property
    def stages(self) -> tuple[Any, ...]:
        return (self,)

    def schedule_values(self, t: Number) -> dict[str, Number]:
        return {name: getattr(self, name)(t) for name in self.STEPS}

    def with_scaled_steps(self, factor: Number) -> Any:
        """Return the method with steps `factor` times as long, except learned steps."""
        steps = {name: getattr(self, name) for name in ("alpha", "beta")}
        scaled = {name: Scaled(factor, s) for name, s in steps.items() if not learned_names(s)}
        return replace(self, **scaled)  # type: ignore[type-var]

    def specialize(self, problem: Problem) -> Any:
        """Specialize the method for this problem, with learned numbers if it left some open."""
        return with_learned_steps(self, problem, 1.0)

    moves_x: ClassVar[bool] = True

    def x_direction(self, estimate: Any, state: Any) -> Tree:
        raise NotImplementedError

    def lower_gradient(self, estimate: Any) -> Tree | None:
        """Return g_y on the sample of this round, if the estimate has it."""
        return None

    def tracker(self, state: Any) -> Tree | None:
        return None

    def auxiliary(self, state: Any) -> Tree | None:
        """Return z if z solves g_yy z = f_y."""
        return None

    def with_lower_level(self, state: Any, y: Tree, z: Tree) -> Any:
        """Return the state with a solved y."""
        return state._replace(y=y)

    def curvature_sample(self, sample: Sample) -> Sample:
        """Return the rows for learning curvature."""
        return sample

    statistics_weight: ClassVar[float] = 1.0

    def smoothing_delay(self, t: Number) -> Number:
        """Return the number of rounds by which averaged directions lag."""
        return 0.0


floor = Learned("floor")  # lower bound of the eigenvalues of an estimated g_yy
