"""Numbers that any method can learn during the run.

`LearnedNumbers` wraps a method. Its state holds the state of the method and the learned numbers. In
every round it fills in the numbers that the method left open:

    alpha      by `diamond.auto.step_rule`, from sketches of x and of its directions
    beta       share / (MARGIN L), of y and z, with L the largest eigenvalue of g_yy
    lipschitz  SAFETY L, of a chain of products with g_yy
    floor      FLOOR L, of the eigenvalues of an estimated g_yy
    z          about the solution of g_yy z = f_y, for a hypergradient with a warm start

L comes from one power iteration step per round. Another product, along z, estimates in how many
rounds y follows x; if y lags, the agent works locally (`local_work`).
"""

import math
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from ...auto.loss_monitor import loss_monitor
from ...auto.step_rule import TINY
from ...core import pytrees
from ...core.cost_counter import Cost
from ...core.pytrees import Tree
from ...core.sampling import Sample
from ...interface.round_interface import Message
from ...problem import Objectives, Problem
from ...schedules.deferred import Deferred, ResolutionContext, ResolvedValue
from ...schedules.learned import learned_names, with_learned_values
from ...schedules.step_schedules import Number
from .learned_step import LearnedStep, StepMemory, initial_memory
from .local_work import work_locally
from .lower_curvature import MARGIN, Curvature, CurvatureRule, cast_like, initial_curvature
from .variables import STATIC

SAFETY = 2.0  # ratio of the bound of the chain to L
FLOOR = 1e-3  # relative to L
MOST_CAUTION = 4.0  # limit for y and z after rollbacks: if they lag, x overshoots at any step
WARM_UP = 4  # steps of y before x moves, if y has no local solution


class State(NamedTuple):
    """x and y, the rest of the method's state, and the learned numbers."""

    x: Tree
    y: Tree
    rest: Any  # state of the method without x and y
    curvature: Curvature | None
    step: StepMemory | None

    @property
    def method(self) -> Any:
        """State of the method."""
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


def _state(method: Any, curvature: Curvature | None, step: StepMemory | None) -> State:
    return State(method.x, method.y, method._replace(x=None, y=None), curvature, step)


class Estimate(NamedTuple):
    """Gradient estimates of a stage, and the state they started from."""

    method: Any
    before: Any  # state of the method after local work
    curvature: Curvature | None
    step: StepMemory | None


@pytrees.pytree
@dataclass(frozen=True)
class LearnedNumbers:
    """A method with learned numbers."""

    method: Any
    share: Any  # steps of y and z on this network, relative to 1 / (MARGIN L)
    caution: Any = 1.0  # above 1 after a rollback: shorter steps
    monitor: Any = 0.0  # placeholder for the monitor of the upper loss, if any
    level: str = field(default="personal", metadata=STATIC)

    @property
    def names(self) -> set[str]:
        return learned_names(self.method)

    @property
    def batch(self) -> int:
        return int(self.method.batch)

    @property
    def lower_levels(self) -> tuple[str, ...]:
        return tuple(self.method.lower_levels)

    @property
    def networks(self) -> str:
        return str(getattr(self.method, "networks", "symmetric"))

    @property
    def hypergradient(self) -> Any:
        return getattr(self.method, "hypergradient", None)

    @property
    def stages(self) -> tuple["LearnedStage", ...]:
        return tuple(LearnedStage(self, k) for k in range(len(self.method.stages)))

    @property
    def lower_steps(self) -> int:
        """Steps of y per round."""
        return max(stage.repeats for stage in self.method.stages)

    @property
    def carries_z(self) -> bool:
        """Whether this wrapper carries z: for the hypergradient, or to estimate the lag of y."""
        return bool({"alpha", "z"} & self.names)

    @property
    def works_locally(self) -> bool:
        """Whether to solve for y when it lags: y is personal and alpha is learned."""
        return self.level == "personal" and "alpha" in self.names

    @property
    def first_move(self) -> int:
        """First round in which x moves."""
        return math.ceil(WARM_UP / self.lower_steps) if self.level == "common" else 0

    @property
    def lower_caution(self) -> Any:
        """Factor by which steps of y and z are shorter after rollbacks."""
        return jnp.minimum(self.caution, MOST_CAUTION)

    def with_scaled_steps(self, factor: Number) -> "LearnedNumbers":
        """Return the method with steps `factor` times as long."""
        return replace(
            self, method=self.method.with_scaled_steps(factor), caution=self.caution / factor
        )

    def schedule_values(self, t: Number) -> dict[str, Number]:
        """Return the numbers that are not learned."""
        given = self.method.schedule_values(t)
        return {name: value for name, value in given.items() if not learned_names(value)}

    def learned(self, state: State) -> dict[str, jax.Array]:
        """Return step sizes, as recorded in the history."""
        found = {}
        if state.step is not None:
            found["alpha"] = state.step.scalars.alpha
        if state.curvature is not None and "beta" in self.names:
            known = state.curvature.largest > 0
            found["beta"] = jnp.where(known, self.values(state.curvature)["beta"], 0.0)
        return found

    def values(self, curvature: Curvature | None) -> dict[str, Any]:
        """Return the numbers at this curvature of g_yy."""
        if curvature is None:
            return {}
        largest = jnp.maximum(self.lower_caution * curvature.largest, TINY)
        return {
            "beta": self.share / (MARGIN * largest),
            "lipschitz": SAFETY * largest,
            "floor": FLOOR * largest,
            "z": curvature.z,
        }

    def init(self, x: Tree, y: Tree) -> State:
        method = self.method.init(x, y)
        step = initial_memory(x) if "alpha" in self.names else None
        curvature = None
        if self.level != "none":
            zero = jnp.zeros((), jnp.result_type(*jax.tree.leaves(x)))
            carries = self.carries_z and self.method.auxiliary(method) is None
            curvature = initial_curvature(y, zero, carries)
        return _state(method, curvature, step)


class LearnedStage(NamedTuple):
    """One stage of the method, with its numbers filled in."""

    algorithm: LearnedNumbers
    number: int

    @property
    def stage(self) -> Any:
        return self.algorithm.method.stages[self.number]

    @property
    def repeats(self) -> int:
        return int(self.stage.repeats)

    @property
    def hessian_batches(self) -> int:
        return int(self.stage.hessian_batches)

    @property
    def sends_before_gradient(self) -> bool:
        return bool(self.stage.sends_before_gradient)

    def filled(self, curvature: Curvature | None, step: StepMemory | None) -> Any:
        """Return the stage of the method with its numbers."""
        values = self.algorithm.values(curvature)
        if step is not None:
            values["alpha"] = step.scalars.alpha
        return with_learned_values(self.algorithm.method, values).stages[self.number]

    def estimate(
        self, problem: Objectives, state: State, t: Number, sample: Sample
    ) -> tuple[Estimate, Cost]:
        method, curvature, step = state.method, state.curvature, state.step
        rows, spent = self.algorithm.method.curvature_sample(sample), Cost()
        if curvature is not None and self.stage.moves_x and self.algorithm.works_locally:
            method, curvature, spent = self._work(problem, method, curvature, t, sample)
        if curvature is not None and (self.stage.moves_x or self.number == 0):
            own = self.algorithm.method.auxiliary(method)
            point = method.x, method.y
            rule = self._curvature_rule(carries_z=own is None and self.algorithm.carries_z)
            curvature, more = rule.update(problem, point, own, curvature, t, rows)
            spent = pytrees.add(spent, more)
        stage = self.filled(curvature, step)
        found, cost = stage.estimate(problem, method, t, sample)
        if step is not None and self.stage.moves_x:
            direction, tracker = stage.x_direction(found, method), stage.tracker(method)
            curvature, step, more = self._step_rule(t).choose(
                problem,
                (method.x, method.y),
                curvature,
                step,
                direction,
                tracker,
                stage.lower_gradient(found),
                t,
                rows,
            )
            spent = pytrees.add(spent, more)
        return Estimate(found, method, curvature, step), pytrees.add(cost, spent)

    def _work(
        self, problem: Objectives, method: Any, curvature: Curvature, t: Number, sample: Sample
    ) -> tuple[Any, Curvature, Cost]:
        """Solve for y and z locally if they lag."""
        own = self.algorithm.method.auxiliary(method)
        z = curvature.z if own is None else own
        lag = curvature.slowest / self.algorithm.lower_steps
        found = work_locally(problem, (method.x, method.y, z), curvature.work, lag, t, sample)
        method = self.algorithm.method.with_lower_level(method, found.y, found.z)
        kept = curvature._replace(work=found.memory, z=found.z if own is None else None)
        return method, kept, found.cost

    def _curvature_rule(self, carries_z: bool) -> CurvatureRule:
        algorithm = self.algorithm
        step = algorithm.share, algorithm.lower_caution
        return CurvatureRule(step, self.stage.moves_x, algorithm.carries_z, carries_z)

    def _step_rule(self, t: Number) -> LearnedStep:
        algorithm, method = self.algorithm, self.algorithm.method
        return LearnedStep(
            algorithm.level,
            algorithm.works_locally,
            algorithm.lower_steps,
            (algorithm.share, algorithm.lower_caution),
            algorithm.first_move,
            1 / algorithm.caution,
            float(method.statistics_weight),
            method.smoothing_delay(t),
        )

    def outgoing(self, state: State, estimate: Estimate | None, t: Number) -> Message:
        if estimate is None or self.sends_before_gradient:
            found, before, curvature, step = None, state.method, state.curvature, state.step
        else:
            found, before, curvature, step = estimate
        sent = self.filled(curvature, step).outgoing(before, found, t)
        extra: dict[str, Any] = {}
        if self.stage.moves_x and step is not None:
            extra["step"] = step.scalars
            if self.stage.tracker(state.method) is None:
                extra["direction"] = step.tracked
        if self.stage.moves_x and self.algorithm.level == "common" and curvature is not None:
            extra["curvature"] = curvature.largest
        return Message({"method": sent.average} | extra, sent.total) if extra else sent

    def update(
        self, state: State, estimate: Estimate, sent: Message, change: Message, t: Number
    ) -> State:
        found, before, curvature, step = estimate
        stage = self.filled(curvature, step)
        if self.stage.moves_x and (step is not None or self.algorithm.level == "common"):
            changes = change.average
            if step is not None:
                tracked = step.tracked + changes.get("direction", 0.0)
                step = step._replace(
                    scalars=pytrees.add(step.scalars, changes["step"]), tracked=tracked
                )
            if self.algorithm.level == "common" and curvature is not None:
                largest = curvature.largest + changes["curvature"]
                curvature = curvature._replace(largest=largest)
            sent, change = (Message(m.average["method"], m.total) for m in (sent, change))
        method = stage.update(before, found, sent, change, t)
        if curvature is not None and self.stage.moves_x and self.algorithm.works_locally:
            solved = curvature.work.solved & jnp.asarray(t > 0)
            kept = {
                n: getattr(before, n) for n in ("y", "z") if getattr(before, n, None) is not None
            }
            moved = {name: getattr(method, name) for name in kept}
            method = method._replace(**pytrees.select(solved, kept, moved))
        return _state(cast_like(method, state.method), curvature, step)


def with_learned_numbers(method: Any, problem: Problem, share: float) -> Any:
    """Wrap a method that leaves numbers open, so that it learns them; return others unchanged.

    `share`: step of y with this method's move, relative to 1 / (MARGIN L).
    """
    if not learned_names(method):
        return method
    stable: Any = 1.0
    if problem.lower_level == "common":
        stable = Deferred("_share_of_beta", partial(_stable_share, share=share))
    monitored = problem.lower_level != "common" and "alpha" in learned_names(method)
    monitor: Any = loss_monitor if monitored else 0.0
    return LearnedNumbers(method, stable, monitor=monitor, level=problem.lower_level)


def _stable_share(context: ResolutionContext, share: float) -> ResolvedValue:
    """Return the share of 1 / (MARGIN L) that is stable for gradient tracking on this network."""
    if context.network is None or share == 1.0:
        return ResolvedValue(share, lasting=True)
    network = context.network.with_damped_weights(0, 25)
    stable = MARGIN * network.tracking_limits["atc"] / 2
    return ResolvedValue(min(share / network.step_inflation, stable), lasting=True)
