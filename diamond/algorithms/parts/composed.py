"""Composed methods: which variables move, in which order, and how often.

A method consists of five choices:

    directions   gradient: x      implicit(h): x, y      carried, penalty: x, y, z
    estimator    plain, average, momentum, recursive, saga
    x, y, z      Variable(step, communication): local, gossip, tracking, extra, diffusion; and
                 perhaps an optimizer, whose update replaces the direction
    update_order "xyz": all at once; "y z x": one after another; "y*10 z*10 x": in inner loops
    lower_levels personal, common, none: supported kinds of lower level
"""

from dataclasses import dataclass, field, fields, replace
from typing import Any, NamedTuple

from ...auto.adaptive_optimizers import Optimizer
from ...auto.loss_monitor import loss_monitor
from ...core import pytrees
from ...core.cost_counter import Cost
from ...core.pytrees import Number, Tree
from ...core.sampling import Sample
from ...interface.round_interface import NETWORKS, Message, Method
from ...problem import Objectives, Problem
from ...schedules.deferred import Deferred
from ...schedules.learned import learned_names
from ...schedules.step_schedules import Scaled, Schedule
from .adaptive_steps import with_adaptive_steps
from .communication_rules import CommunicationInputs, CommunicationRule
from .directions import BoundDirections, Directions, Gradient
from .gradient_estimators import Estimator, EstimatorInputs
from .learnable import LearnableMethod, LearnableStage
from .learned_algorithm import with_learned_steps
from .lower_curvature import cast_like
from .variables import STATIC, Point

STEP_NAMES = {"x": "alpha", "y": "beta", "z": "delta"}
SLOWER_Y = 4.0  # x after a rollback: its steps relative to those of y and z
Estimate = tuple[Point, Any]  # directions, state of the estimator


@pytrees.pytree
@dataclass(frozen=True)
class Variable:
    """Step size and communication rule of x, y or z.

    With an `optimizer`, the step size is the factor of its updates, 1 unless a run rolled back.
    """

    step: Schedule
    communication: CommunicationRule
    optimizer: Optimizer | None = None


class OptimizedMemory(NamedTuple):
    """State of the communication rule, and of the optimizer, of a variable that has one."""

    rule: Any
    optimizer: Any


def rule_memory(memory: Any) -> Any:
    """Return the state of the communication rule."""
    return memory.rule if isinstance(memory, OptimizedMemory) else memory


class ComposedState(NamedTuple):
    """State of an agent between rounds; None if not needed."""

    x: Tree
    y: Tree
    z: Tree
    last: tuple[Point | None, ...]  # per word of the update order, the point of its last directions
    old: Point  # p, v, w: last directions of x, y, z
    memory: Point  # states of the communication rules: a tracker u, ...
    table: Any  # state of the estimator

    @property
    def p(self) -> Tree:
        return self.old.x

    @property
    def v(self) -> Tree:
        return self.old.y

    @property
    def u(self) -> Tree:
        return rule_memory(self.memory.x)


@pytrees.pytree
@dataclass(frozen=True)
class ComposedAlgorithm(LearnableMethod):
    """A method composed of parts."""

    directions: Directions
    estimator: Estimator
    x: Variable
    y: Variable | None = None
    z: Variable | None = None
    batch: int = field(default=64, metadata=STATIC)
    update_order: str = field(default="xyz", metadata=STATIC)
    inner: Any = field(default=1, metadata=STATIC)  # value of "*inner" in the update order
    lower_levels: tuple[str, ...] = field(default=("personal",), metadata=STATIC)

    def __post_init__(self) -> None:
        names_needed, names_given = self.directions.variables, "".join(self.variables)
        if names_given != names_needed:
            raise ValueError(
                f"these directions are of {', '.join(names_needed)}; moves were given for "
                f"{', '.join(names_given)}"
            )
        words = [word.partition("*") for word in self.update_order.split()]
        letters = "".join(name for name, _, _ in words)
        moved = sorted(n for n in letters if n in names_given)
        if moved != list(names_given) or set(letters) - set("xyz"):
            raise ValueError(
                f"update_order {self.update_order!r} must move each of {', '.join(names_given)} "
                f"once"
            )
        if any(k not in ("", "inner") and (not k.isdigit() or int(k) < 1) for _, _, k in words):
            raise ValueError(
                f"update_order {self.update_order!r}: how often is a whole number, as in 'y*10 x'"
            )
        if self.estimator.needs_split_levels and not self.directions.splits_levels:
            raise ValueError("a table of blocks needs directions carried, penalty or gradient")

    @property
    def hypergradient(self) -> Any:
        return self.directions.hypergradient

    @property
    def privacy(self) -> Any:
        return self.estimator if self.estimator.is_private else None

    def with_estimator(self, estimator: Estimator) -> "ComposedAlgorithm":
        return replace(self, estimator=estimator)

    @property
    def needs_strong_convexity(self) -> bool:
        """Whether the directions are defined only for a strongly convex lower level."""
        return self.directions.needs_strong_convexity

    @property
    def variables(self) -> dict[str, Variable]:
        candidates = {"x": self.x, "y": self.y, "z": self.z}
        return {name: v for name, v in candidates.items() if v is not None}

    @property
    def networks(self) -> str:
        """Widest kind of network on which all communication rules are correct."""
        return min((v.communication.networks for v in self.variables.values()), key=NETWORKS.index)

    @property
    def stages(self) -> tuple["StageOfVariables", ...]:
        words = [word.partition("*") for word in self.update_order.split()]
        names = ["".join(n for n in word if n in self.variables) for word, _, _ in words]
        repeats = [self.inner if k == "inner" else int(k or 1) for _, _, k in words]
        stages = [(n, k) for n, k in zip(names, repeats) if n]
        return tuple(StageOfVariables(self, i, n, k) for i, (n, k) in enumerate(stages))

    def specialize(self, problem: Problem) -> Method:
        """Specialize the method for this problem.

        Without a lower level, x moves along the gradient of f; if x is regularized, its rule ends
        in the prox.
        """
        method = self
        if problem.lower_level == "none" and self.y is not None:
            method = self.without_lower_level()
        if problem.prox is not None:
            method = replace(method, x=_with_prox(method.x, problem.prox))
        method = method.estimator.specialize(method, problem)
        method = with_adaptive_steps(method, problem)
        share = 1.0 if method.y is None else method.y.communication.share_of_step
        if method.x.optimizer and method.x.optimizer.learns_step and not learned_names(method):
            parts = {f.name: getattr(method, f.name) for f in fields(method)}
            return AdaptiveAlgorithm(**parts)
        return with_learned_steps(method, problem, share)

    def without_lower_level(self) -> "ComposedAlgorithm":
        """Return the method for a problem without a lower level."""
        return replace(self, directions=Gradient(), y=None, z=None, update_order="x")

    def with_scaled_steps(self, factor: Number) -> "ComposedAlgorithm":
        """Return the method with steps `factor` times as long, except learned steps."""
        scalable = {n: v for n, v in self.variables.items() if not learned_names(v.step)}
        smaller = lambda v: replace(v, step=Scaled(factor, v.step))
        return replace(self, **{name: smaller(v) for name, v in scalable.items()})

    def schedule_values(self, t: Number) -> dict[str, Number]:
        steps = {STEP_NAMES[n]: v.step(t) for n, v in self.variables.items() if v.optimizer is None}
        return steps | self.estimator.schedule_values(t)

    def restart_trackers(self, state: ComposedState) -> ComposedState:
        """Return the state after a change of members; see `interface.member_changes`."""
        self.estimator.check_member_changes()
        restarted = {}
        for name, v in self.variables.items():
            memory, previous = getattr(state.memory, name), getattr(state.old, name)
            rule_state = v.communication.restart(rule_memory(memory), previous)
            if v.optimizer is not None:
                learns = v.optimizer.learns_step
                optimizer = v.optimizer.init(getattr(state, name)) if learns else memory.optimizer
                rule_state = OptimizedMemory(rule_state, optimizer)
            restarted[name] = rule_state
        return state._replace(memory=state.memory.with_values(**restarted))

    def auxiliary(self, state: ComposedState) -> Tree | None:
        """Return z if z solves g_yy z = f_y."""
        return state.z if self.directions.solves_for_z else None

    def with_lower_level(self, state: ComposedState, y: Tree, z: Tree) -> ComposedState:
        """Return the state with solved y and z; a second copy of y is shifted like y."""
        if state.z is None:
            return state._replace(y=y)
        if self.directions.solves_for_z:
            return state._replace(y=y, z=z)
        return state._replace(y=y, z=pytrees.add(state.z, pytrees.sub(y, state.y)))

    def curvature_sample(self, sample: Sample) -> Sample:
        """Return the rows for learning curvature: all rows if directions use all rows."""
        return sample.full() if self.estimator.full else sample

    @property
    def statistics_weight(self) -> float:
        return 0.3 if self.estimator.is_noisy and self.directions.hessian_batches else 1.0

    def smoothing_delay(self, t: Number) -> Number:
        """Return the number of rounds by which averaged directions lag."""
        return self.estimator.delay(t)

    def init(self, x: Tree, y: Tree) -> ComposedState:
        point = self.directions.start(x, y)
        old, memory = Point(), Point()
        for name, v in self.variables.items():
            s = getattr(point, name)
            rule_state = v.communication.init(s)
            if v.optimizer is not None:
                rule_state = OptimizedMemory(rule_state, v.optimizer.init(s))
            memory = memory.with_values(**{name: rule_state})
            if (
                name in self.estimator.previous_direction_variables
                or v.communication.needs_previous_direction
            ):
                old = old.with_values(**{name: pytrees.zeros(s)})
        last = tuple(point if self.estimator.needs_previous_point else None for _ in self.stages)
        return ComposedState(
            point.x, point.y, point.z, last, old, memory, self.estimator.init(point)
        )


@pytrees.pytree
@dataclass(frozen=True)
class AdaptiveAlgorithm(ComposedAlgorithm):
    """A composed method whose optimizer of x learns the step size."""

    monitors_loss: bool = field(default=True, metadata={"static": True})
    learns_alpha = True

    @property
    def checks(self) -> tuple[Deferred, ...]:
        return (loss_monitor,) if self.monitors_loss else ()

    def with_scaled_steps(self, factor: Number) -> "AdaptiveAlgorithm":
        """Return the method with steps of x `factor` times as long.

        Where y lags behind x, shorter steps of both do not help: y and z have their steps until x
        has a quarter of its own, and never less than a quarter.
        """
        lower = min(max(SLOWER_Y * factor, 1 / SLOWER_Y), 1.0)
        scaled: dict[str, Any] = {
            name: replace(v, step=Scaled(factor if name == "x" else lower, v.step))
            for name, v in self.variables.items()
        }
        return replace(self, **scaled)

    def with_robust_mixing(self) -> "AdaptiveAlgorithm":
        """Return the method without a monitor of the upper loss, which liars could inflate."""
        return replace(self, monitors_loss=False)

    def learned_values(self, state: ComposedState) -> dict[str, Any]:
        """Return step sizes, as recorded in the history."""
        return {"alpha": state.memory.x.optimizer.alpha}


def _with_prox(x: Variable, prox: Any) -> Variable:
    rule = x.communication
    if x.optimizer is not None and not x.optimizer.has_step_size:
        raise ValueError(
            "x of this problem has a prox, which needs a step size, and an optimizer of optax has "
            "none: leave out the optimizer of x"
        )
    if not rule.takes_prox or (rule.sends_before_gradient and rule.vectors):
        raise ValueError(
            f"x of this problem has a prox, which {type(rule).__name__.lower()}"
            f"{' in the order of the paper' * rule.takes_prox} cannot take: use a method "
            f"that moves x by gossip or tracking with order='atc', such as diamond.prometheus()"
        )
    return replace(x, communication=rule.with_prox(prox))


@dataclass(frozen=True)
class StageOfVariables(LearnableStage):
    """One word of the update order: variables that move at once, and the number of repeats."""

    algorithm: ComposedAlgorithm
    position: int
    names: str
    repeats: int

    @property
    def variables(self) -> dict[str, Variable]:
        return {n: v for n, v in self.algorithm.variables.items() if n in self.names}

    @property
    def hessian_batches(self) -> int:
        return self.algorithm.directions.hessian_batches if self.moves_x else 0

    @property
    def moves_x(self) -> bool:
        return "x" in self.names

    def x_direction(self, estimate: Estimate, state: ComposedState) -> Tree:
        return estimate[0].x

    def lower_gradient(self, estimate: Estimate) -> Tree | None:
        """Return g_y on the sample of this round, if the estimate has it."""
        return estimate[0].y if self.algorithm.estimator.keeps_lower_gradient else None

    def tracker(self, state: ComposedState) -> Tree | None:
        """Return the network's mean direction of x in the previous round, if x is tracked."""
        return self.algorithm.x.communication.tracker(rule_memory(state.memory.x))

    @property
    def sends_before_gradient(self) -> bool:
        return all(v.communication.sends_before_gradient for v in self.variables.values())

    def estimate(
        self, problem: Objectives, state: ComposedState, t: Number, sample: Sample
    ) -> tuple[Estimate, Cost]:
        """Estimate p_t, v_t, w_t for the variables of this part."""
        algorithm, point = self.algorithm, Point(state.x, state.y, state.z)
        if algorithm.directions.uses_all_rows:
            sample = sample.full_below()
        directions = BoundDirections(algorithm.directions, problem, self.names, t)
        previous_point = state.last[self.position]
        inputs = EstimatorInputs(point, previous_point, state.old, state.table, t, sample)
        result, table, cost = algorithm.estimator(directions, inputs)
        return (result, table), cost

    def _rule_inputs(self, state: ComposedState, estimate: Estimate | None, t: Number) -> Any:
        """Yield name, communication rule and inputs of the rule for every variable."""
        directions = Point() if estimate is None else estimate[0]
        for name, v in self.variables.items():
            get = lambda point, name=name: getattr(point, name)
            s, memory, d, old = map(get, (state, state.memory, directions, state.old))
            optimizer_state = None
            if v.optimizer is not None:
                memory, optimizer_state = memory
            inputs = CommunicationInputs(s, memory, d, old, v.step(t), v.optimizer, optimizer_state)
            yield name, v.communication, inputs

    def outgoing(self, state: ComposedState, estimate: Estimate | None, t: Number) -> Message:
        sent = {
            name: rule.outgoing(inputs)
            for name, rule, inputs in self._rule_inputs(state, estimate, t)
        }
        part = lambda k: {name: m[k] for name, m in sent.items() if m[k] is not None}
        return Message(part(0), part(1))

    def move_local_variables(
        self, state: ComposedState, estimate: Estimate, t: Number
    ) -> tuple[ComposedState, Estimate]:
        """Move the variables that no other agent needs, and drop their directions.

        `outgoing` and `update` then move the others; together this is `update`.
        """
        names = "".join(n for n, v in self.variables.items() if not v.communication.vectors)
        if self.algorithm.estimator.needs_previous_point or not names:
            return state, estimate
        local = StageOfVariables(self.algorithm, self.position, names, self.repeats)
        moved = local.update(state, estimate, Message({}, {}), Message({}, {}), t)
        others = "".join(n for n in self.names if n not in names)
        return moved._replace(table=state.table), (estimate[0].only(others), estimate[1])

    def update(
        self, state: ComposedState, estimate: Estimate, sent: Message, change: Message, t: Number
    ) -> ComposedState:
        algorithm, old, memory, moved = self.algorithm, state.old, state.memory, {}
        directions, table = estimate
        for name, rule, inputs in self._rule_inputs(state, estimate, t):
            if inputs.d is None:  # moved before
                continue
            select = lambda m, name=name: Message(m.average.get(name), m.total.get(name))
            moved[name], rule_state = rule.incoming(inputs, select(sent), select(change))
            if inputs.optimizer is not None:
                direction = rule.step_direction(inputs, select(sent), select(change))
                state_before = inputs.optimizer_state
                _, new = inputs.optimizer.update(direction, state_before, inputs.s)
                rule_state = OptimizedMemory(rule_state, cast_like(new, state_before))
            memory = memory.with_values(**{name: rule_state})
            if (
                name in algorithm.estimator.previous_direction_variables
                or rule.needs_previous_direction
            ):
                old = old.with_values(**{name: getattr(directions, name)})
        last = list(state.last)
        if algorithm.estimator.needs_previous_point:
            last[self.position] = Point(state.x, state.y, state.z)
        rest = dict(last=tuple(last), old=old, memory=memory, table=table)
        return state._replace(**moved, **rest)
