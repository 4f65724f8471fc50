"""Stages of a method that learns its step sizes: each fills in the numbers, then runs the stage."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp

from ...core import pytrees
from ...core.cost_counter import Cost
from ...core.pytrees import Number
from ...core.sampling import Sample
from ...interface.round_interface import Message, Stage, state_part
from ...problem import Objectives
from ...schedules.learned import with_learned_values
from .learnable import LearnableMethod, LearnableStage
from .learned_state import LearnedStepsEstimate, LearnedStepsState, make_state
from .learned_step import LearnedStep, StepMemory
from .local_solution import work_locally
from .lower_curvature import Curvature, CurvatureLearning, cast_like

if TYPE_CHECKING:
    from .learned_algorithm import LearnedStepsAlgorithm


@dataclass(frozen=True)
class LearnedStepsStage(Stage):
    """One stage of the method, with its numbers filled in."""

    algorithm: "LearnedStepsAlgorithm"
    position: int

    @property
    def stage(self) -> LearnableStage:
        return self.algorithm.method.stages[self.position]

    @property
    def repeats(self) -> int:
        return self.stage.repeats

    @property
    def hessian_batches(self) -> int:
        return self.stage.hessian_batches

    @property
    def sends_before_gradient(self) -> bool:
        return self.stage.sends_before_gradient

    def with_current_values(
        self, curvature: Curvature | None, step: StepMemory | None
    ) -> LearnableStage:
        """Return the stage of the method with its numbers."""
        values = self.algorithm.values_at(curvature)
        if step is not None:
            values["alpha"] = step.scalars.alpha
        method: LearnableMethod = with_learned_values(self.algorithm.method, values)
        return method.stages[self.position]

    def estimate(
        self, problem: Objectives, state: LearnedStepsState, t: Number, sample: Sample
    ) -> tuple[LearnedStepsEstimate, Cost]:
        method, curvature, step = state.method, state.curvature, state.step
        curvature_sample, spent = self.algorithm.method.curvature_sample(sample), Cost()
        rounds = t - self.algorithm.first_round  # of learning
        if curvature is not None and self.stage.moves_x and self.algorithm.works_locally:
            method, curvature, spent = self._work_locally(
                problem, method, curvature, rounds, sample=sample
            )
        if curvature is not None and (self.stage.moves_x or self.position == 0):
            z = self.algorithm.method.auxiliary(method)
            point = method.x, method.y
            rule = self._curvature_learning(carries_z=z is None and self.algorithm.needs_z)
            curvature, extra_cost = rule.update(
                problem, point, z, curvature, rounds, curvature_sample
            )
            spent = pytrees.add(spent, extra_cost)
        stage = self.with_current_values(curvature, step)
        estimate, cost = stage.estimate(problem, method, t, sample)
        if step is not None and self.stage.moves_x:
            direction, tracker = stage.x_direction(estimate, method), stage.tracker(method)
            curvature, step, extra_cost = self._step_learning(t).choose(
                problem,
                (method.x, method.y),
                curvature,
                step,
                direction,
                tracker,
                stage.lower_gradient(estimate),
                rounds,
                curvature_sample,
            )
            spent = pytrees.add(spent, extra_cost)
        return LearnedStepsEstimate(estimate, method, curvature, step), pytrees.add(cost, spent)

    def _work_locally(
        self, problem: Objectives, method: Any, curvature: Curvature, t: Number, *, sample: Sample
    ) -> tuple[Any, Curvature, Cost]:
        """Solve for y and z locally if they lag."""
        method_z = self.algorithm.method.auxiliary(method)
        z = curvature.z if method_z is None else method_z
        lag = curvature.slowest / self.algorithm.lower_steps
        solution = work_locally(problem, (method.x, method.y, z), curvature.work, lag, t, sample)
        method = self.algorithm.method.with_lower_level(method, solution.y, solution.z)
        curvature_after = curvature._replace(
            work=solution.memory, z=solution.z if method_z is None else None
        )
        return method, curvature_after, solution.cost

    def _curvature_learning(self, carries_z: bool) -> CurvatureLearning:
        algorithm = self.algorithm
        step = algorithm.share, algorithm.lower_caution
        return CurvatureLearning(step, self.stage.moves_x, algorithm.needs_z, carries_z)

    def _step_learning(self, t: Number) -> LearnedStep:
        algorithm, method = self.algorithm, self.algorithm.method
        return LearnedStep(
            algorithm.level,
            algorithm.works_locally,
            algorithm.lower_steps,
            (algorithm.share, algorithm.lower_caution),
            algorithm.first_move,
            1 / algorithm.caution,
            method.statistics_weight,
            method.smoothing_delay(t),
        )

    def outgoing(
        self, state: LearnedStepsState, estimate: LearnedStepsEstimate | None, t: Number
    ) -> Message:
        if estimate is None or self.sends_before_gradient:
            method_estimate, before, curvature, step = (
                None,
                state.method,
                state.curvature,
                state.step,
            )
        else:
            method_estimate, before, curvature, step = estimate
        sent = self.with_current_values(curvature, step).outgoing(before, method_estimate, t)
        extra: dict[str, Any] = {}
        if self.stage.moves_x and step is not None:
            extra["step"] = step.scalars
            if self.stage.tracker(state.method) is None:
                tracks = self.algorithm.tracks_direction
                extra["direction"] = step.tracked if tracks else step.direction
        if self.stage.moves_x and self.algorithm.level == "common" and curvature is not None:
            extra["curvature"] = curvature.largest
        return sent._replace(average={"method": sent.average} | extra) if extra else sent

    def update(
        self,
        state: LearnedStepsState,
        estimate: LearnedStepsEstimate,
        sent: Message,
        change: Message,
        t: Number,
    ) -> LearnedStepsState:
        method_estimate, before, curvature, step = estimate
        stage = self.with_current_values(curvature, step)
        if self.stage.moves_x and (step is not None or self.algorithm.level == "common"):
            changes = change.average
            if step is not None:
                tracked = step.tracked if self.algorithm.tracks_direction else step.direction
                tracked = tracked + changes.get("direction", 0.0)
                step = step._replace(
                    scalars=pytrees.add(step.scalars, changes["step"]), tracked=tracked
                )
            if self.algorithm.level == "common" and curvature is not None:
                largest = curvature.largest + changes["curvature"]
                curvature = curvature._replace(largest=largest)
            sent, change = (m._replace(average=m.average["method"]) for m in (sent, change))
        method = stage.update(before, method_estimate, sent, change, t)
        if curvature is not None and self.stage.moves_x and self.algorithm.works_locally:
            solved = curvature.work.solved & jnp.asarray(t > self.algorithm.first_round)
            unchanged = {n: part for n in ("y", "z") if (part := state_part(before, n)) is not None}
            moved = {name: getattr(method, name) for name in unchanged}
            method = method._replace(**pytrees.select(solved, unchanged, moved))
        return make_state(cast_like(method, state.method), curvature, step)
