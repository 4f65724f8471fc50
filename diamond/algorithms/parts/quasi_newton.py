"""Quasi-Newton steps of x on agreed samples, accepted only if the objective decreases."""

from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from ...auto import lower_solver, quasi_newton_control
from ...auto.curvature_pairs import CurvaturePairs, divide, dot, no_pairs, norm
from ...auto.local_solver import run_if
from ...auto.lower_solver import (
    FINISHED,
    GRADIENT,
    UPPER,
    Answer,
    LowerSolution,
    LowerTask,
    solve_locally,
)
from ...auto.quasi_newton_control import (
    CONVERGED,
    DONE,
    MOST_REFINEMENTS,
    PROBE,
    RESAMPLE,
    START,
    STUCK,
    Control,
    EvaluatedPoint,
)
from ...auto.sampled_losses import SampledLosses, Vector
from ...core import pytrees
from ...core.cost_counter import Cost
from ...core.host_transfer import default_dtype
from ...core.pytrees import Number, Tree, select
from ...core.sampling import Sample
from ...interface.round_interface import Message, Method, Stage
from ...problem import Objectives
from ...schedules.deferred import Deferred, Measurement, ResolutionContext, ResolvedValue
from .opening import Opening, OpeningState, OpeningWork

DIRECTIONS = 20  # saved directions of conjugate gradients
ENOUGH, DROP = 0.3, 0.3  # accuracy of y and z at the start
VALUE_ERROR = 0.1  # of the decrease that is to be judged
GRADIENT_ERROR = 0.5  # of an agent's hypergradient, relative to the mean over all agents
NEWTON_STEPS, FIRST_STEPS, FINE_STEPS = 2, 10, 4
RELATIVE = 0.25 ** np.arange(MOST_REFINEMENTS + 1)  # exact at every agent, unlike a power
EVALUATION_SIZE = 9


class QuasiNewtonState(NamedTuple):
    """State of an agent; equal at all agents but for personal y, z and pairs."""

    x: Tree
    y: Tree
    adjoint: Vector  # z, with g_yy z = f_y
    pairs: CurvaturePairs
    control: Control
    solver: LowerSolution | None  # of a common lower level, between two exchanges
    opening: OpeningState | None = None  # of the method of the first rounds


class LocalWork(NamedTuple):
    """Result of an agent's work in a round."""

    message: Vector
    y: Vector
    z: Vector
    pairs: CurvaturePairs
    f_x: Vector
    opening: OpeningWork | None = None


@pytrees.pytree
@dataclass(frozen=True)
class QuasiNewton(Method, Stage):
    """The method as a stage; its only exchange is an exact average over all agents.

    The first rounds may belong to another method, the `opening`, whose direction of x is averaged.
    """

    most_rows: Any  # of an agent
    agents: Any  # number of agents
    tolerance: Any = 1e-5
    opening: Opening | None = None
    batch: int = field(default=64, metadata={"static": True})
    lower_level: str = field(default="personal", metadata={"static": True})
    lower_levels = ("personal", "common", "none")
    networks = "directed"
    ends_by_itself = True
    repeats = 1
    hessian_batches = 0
    sends_before_gradient = False
    takes_turns = True

    @property
    def ignores_samples(self) -> bool:
        """Whether it draws nothing: it takes the first rows of all agents."""
        return self.opening is None

    @property
    def stages(self) -> tuple["QuasiNewton"]:
        return (self,)

    def schedule_values(self, t: Number) -> dict[str, Number]:
        return {}

    def learned_values(self, state: QuasiNewtonState) -> dict[str, jax.Array]:
        """Return columns of the history, per agent."""
        c = state.control
        columns = {"rows": c.rows, "radius": c.radius, "gradient": c.relative_size}
        return columns | {"accepted": c.accepted, "refused": c.refused}

    def is_finished(self, state: QuasiNewtonState) -> jax.Array:
        """Return whether the run has ended."""
        return jnp.all(state.control.phase == DONE)

    def describe_end(self, state: QuasiNewtonState) -> str:
        """Return why the method has ended, or ""; `state` is of one or of all agents."""
        is_stacked = np.ndim(state.control.phase) > 0
        c = jax.tree.map(lambda a: np.asarray(a)[0] if is_stacked else np.asarray(a), state.control)
        gradient = f"the gradient is {c.relative_size:.1g} of its start"
        stuck = f"stopped: no step decreases the upper loss any more; {gradient}"
        if c.has_negative_curvature:
            stuck += "; g_yy is not positive definite: if g is not convex in y, give convex=False"
        return {CONVERGED: f"converged: {gradient}", STUCK: stuck}.get(int(c.reason), "")

    def init(self, x: Tree, y: Tree) -> QuasiNewtonState:
        flat_x, flat_y = _flat(x), _flat_lower(x, y)
        pairs = no_pairs(DIRECTIONS, flat_y)
        is_common = self.lower_level == "common"
        rows = quasi_newton_control.first_rows(
            self.most_rows, self.agents, flat_x.size, flat_y.size, is_common
        )
        control = quasi_newton_control.begin_control(flat_x, rows)
        state = QuasiNewtonState(x, y, 0 * flat_y, pairs, control, None)
        state = state._replace(solver=self._begin(state) if is_common else None)
        opening = None if self.opening is None else self.opening.init(x, y)
        return state._replace(opening=opening)

    def restart_trackers(self, state: QuasiNewtonState) -> QuasiNewtonState:
        """Return the start from the present x and y: other members have another objective."""
        return self.init(state.x, state.y)

    def estimate(
        self, problem: Objectives, state: QuasiNewtonState, t: Number, sample: Sample
    ) -> tuple[LocalWork, Cost]:
        if self.opening is None:
            return self._evaluate(problem, state, jnp.bool_(True))
        opening, opening_state = self.opening, state.opening
        assert opening_state
        size = _flat(state.x).size + EVALUATION_SIZE
        first_steps = lambda: opening.estimate(problem, opening_state, t, sample)
        none = jax.tree.map(lambda a: jnp.zeros(a.shape, a.dtype), jax.eval_shape(first_steps)[0])

        def open_round() -> tuple[LocalWork, Cost]:
            steps, cost = first_steps()
            p = _flat(steps.directions.x)
            y, message = _flat(state.y), jnp.pad(p, (0, size - p.size))
            work = LocalWork(message, y, state.adjoint, state.pairs, 0 * p, steps)
            return work, Cost(*(jnp.asarray(n, jnp.int32) for n in cost))

        def evaluate() -> tuple[LocalWork, Cost]:
            work, cost = self._evaluate(problem, state, jnp.isinf(opening_state.first_value))
            return work._replace(opening=none), cost

        result: tuple[LocalWork, Cost] = jax.lax.cond(opening.is_open(t), open_round, evaluate)
        return result

    @partial(jax.jit, inline=True)  # traced once, for the messages and for the rounds
    def _evaluate(
        self, problem: Objectives, state: QuasiNewtonState, counts_start: jax.Array
    ) -> tuple[LocalWork, Cost]:
        """Evaluate a point, or answer one question of a common lower level.

        `counts_start`: whether the rows of a first evaluation are new.
        """
        c = state.control
        _, to_x = ravel_pytree(state.x)
        _, to_y = ravel_pytree(state.y)
        counts = [jnp.minimum(c.rows, rows.count) for rows in (problem.train, problem.valid)]
        losses, task = SampledLosses(problem, to_x, to_y, *counts), _task_of(c, _flat(state.x))
        if state.solver is not None:
            question = state.solver
            given, f_x = lower_solver.answer(losses, task, question)
            calls = lower_solver.cost_of(losses, question.phase)
            message = jnp.append(given.vector, given.number)
            work = LocalWork(
                message, _flat_lower(state.x, state.y), state.adjoint, state.pairs, f_x
            )
        else:
            question = self._begin(state)
            solver, calls = solve_locally(losses, task, question)
            message = _message(_evaluation(solver, c))
            work = LocalWork(message, solver.y, solver.z, solver.pairs, solver.f_x)
        first_phase = UPPER if self.lower_level == "none" else GRADIENT
        is_start = (c.phase == START) & counts_start
        is_new = (is_start | (c.phase == RESAMPLE)) & (question.phase == first_phase)
        parts = (problem.valid,) if self.lower_level == "none" else (problem.train, problem.valid)
        fresh = sum(
            jnp.minimum(c.rows, p.count) - jnp.minimum(c.rows_before, p.count) for p in parts
        )
        return work, Cost(is_new * fresh, *calls)

    def outgoing(self, state: QuasiNewtonState, estimate: LocalWork, t: Number) -> Message:
        return Message(mean=estimate.message)

    def update(
        self,
        state: QuasiNewtonState,
        estimate: LocalWork,
        sent: Message,
        change: Message,
        t: Number,
    ) -> QuasiNewtonState:
        mean = change.mean
        if state.solver is None:
            accept = lambda: self._step(state, estimate, _from_message(mean))
            if self.opening is None:
                return accept()
            first_step = lambda: self._open(state, estimate, mean, t)
            close = lambda: self._close(state, accept(), mean, t)
            return jax.lax.cond(self.opening.is_open(t), first_step, close)
        answer = Answer(mean[:-1], mean[-1])
        task = _task_of(state.control, _flat(state.x))
        solver = state.solver._replace(f_x=estimate.f_x)
        solver = lower_solver.advance(task, solver, answer)
        state = state._replace(solver=solver)

        def step() -> QuasiNewtonState:
            work = LocalWork(mean, solver.y, solver.z, solver.pairs, solver.f_x)
            after = self._step(state, work, _evaluation(solver, state.control))
            return after._replace(solver=self._begin(after))

        is_finished = (solver.phase == FINISHED) & (state.control.phase != DONE)
        return run_if(is_finished, step, state)

    def _open(
        self, state: QuasiNewtonState, work: LocalWork, mean: Vector, t: Number
    ) -> QuasiNewtonState:
        """Return the state after a round of the opening."""
        assert self.opening and state.opening and work.opening
        flat_x, to_x = ravel_pytree(state.x)
        opened = self.opening.update(state.opening, work.opening, to_x(mean[: flat_x.size]), t)
        return state._replace(x=opened.composed.x, y=opened.composed.y, opening=opened)

    def _close(
        self, state: QuasiNewtonState, after: QuasiNewtonState, mean: Vector, t: Number
    ) -> QuasiNewtonState:
        """Return the state before or behind the opening; `after` has made its step.

        The start is evaluated in round 0. If the objective is larger behind the opening, or not a
        number, quasi-Newton steps begin at the start.
        """
        assert self.opening and state.opening
        opening, value, is_first = state.opening, _from_message(mean).value, t == 0
        is_worse = (t == self.opening.rounds + 1) & ~(value <= opening.first_value)
        opened = opening._replace(first_value=jnp.where(is_first, value, opening.first_value))
        x, y = select(is_worse, opening.start, (state.x, state.y))
        before = state._replace(x=x, y=y, opening=opened)
        return select(is_first | is_worse, before, after)

    def _begin(self, state: QuasiNewtonState) -> LowerSolution:
        c = state.control
        has_lower = self.lower_level != "none"
        task = _task_of(c, _flat(state.x))
        solver = lower_solver.begin(
            task, _flat_lower(state.x, state.y), state.adjoint, state.pairs, has_lower
        )
        phase = jnp.where(c.phase == DONE, FINISHED, solver.phase).astype(solver.phase.dtype)
        return solver._replace(phase=phase)

    def _step(
        self, state: QuasiNewtonState, work: LocalWork, evaluation: EvaluatedPoint
    ) -> QuasiNewtonState:
        x, to_x = ravel_pytree(state.x)
        y, to_y = _flat_lower(state.x, state.y), ravel_pytree(state.y)[1]
        control, x, takes, is_sound = quasi_newton_control.advance_control(
            state.control, x, evaluation, self.most_rows, tolerance=self.tolerance
        )
        y, z = select(takes, (work.y, work.z), (y, state.adjoint))
        pairs = select(is_sound, work.pairs, state.pairs)
        return QuasiNewtonState(to_x(x), to_y(y), z, pairs, control, state.solver, state.opening)


def _task_of(c: Control, x: Vector) -> LowerTask:
    """Return the next evaluation as a task of the lower level's solver."""
    is_start = c.phase == START
    relative = jnp.asarray(RELATIVE, c.value.dtype)[c.refinement]
    drop = DROP * relative
    steps = jnp.where(is_start, FIRST_STEPS, jnp.where(drop > 0.05, NEWTON_STEPS, FINE_STEPS))
    decrease = c.share * jnp.abs(dot(c.u, c.d))
    value_error = jnp.where(c.phase == RESAMPLE, 1.0, VALUE_ERROR)
    size, cross_size = norm(c.d), jnp.where(c.cross_size > 0, c.cross_size, 1)
    return LowerTask(
        x=quasi_newton_control.point_of(c, x),
        direction=divide(c.d, jnp.where(size > 0, size, 1)),
        is_probe=c.phase == PROBE,
        enough=ENOUGH * relative,
        drop=jnp.where(is_start, DROP, drop),
        newton_steps=steps,
        relative=relative,
        z_error=jnp.where(c.cross_size > 0, GRADIENT_ERROR * c.size / cross_size, jnp.inf),
        value_error=jnp.where(is_start | (c.radius == 0), jnp.inf, value_error * decrease),
    )


def _evaluation(s: LowerSolution, c: Control) -> EvaluatedPoint:
    correction = dot(s.z, s.g)
    value = s.value - correction
    return EvaluatedPoint(
        hypergradient=s.hypergradient,
        value=value,
        slope=dot(s.hypergradient, c.d),
        magnitude=jnp.abs(value),
        first_gradient=s.first,
        correction=jnp.abs(correction),
        curvature=s.curvature,
        shift=s.shift,
        has_negative_curvature=s.has_negative_curvature,
        cross_size=s.cross_size,
    )


def _message(evaluation: EvaluatedPoint) -> Vector:
    return jnp.concatenate([evaluation.hypergradient, jnp.stack(evaluation[1:])])


def _from_message(message: Vector) -> EvaluatedPoint:
    return EvaluatedPoint(message[:-EVALUATION_SIZE], *message[-EVALUATION_SIZE:])


def _flat(tree: Tree) -> Vector:
    return ravel_pytree(tree)[0]


def _most_rows(context: ResolutionContext) -> ResolvedValue:
    def measure() -> Measurement:
        problem = context.problem
        parts = ["train"] if problem.lower is None else ["train", "valid"]
        rows = np.max([problem.counts(part) for part in parts], axis=0)
        return rows.astype(default_dtype())[:, None], Cost()

    (rows,), cost = context.consensus.maximum("_most_rows", measure)
    return ResolvedValue(int(rows), cost, agreed=1, talks=1, lasting=True)


most_rows = Deferred("_most_rows", _most_rows)  # of an agent of the network


def _flat_lower(x: Tree, y: Tree) -> Vector:
    """Return y as a vector; without a lower level, an empty one of the type of x."""
    return _flat(y) if jax.tree.leaves(y) else _flat(x)[:0]
