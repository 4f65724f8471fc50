"""Numbers that any method can learn during the run.

`LearnedStepsAlgorithm` wraps a method. Its state holds the state of the method and the learned
numbers. In every round it fills in the numbers that the method left open:

    alpha      by `diamond.auto.step_learning`, from sketches of x and of its directions
    beta       share / (MARGIN L), of y and z, with L the largest eigenvalue of g_yy
    lipschitz  SAFETY L, of a chain of products with g_yy
    floor      FLOOR L, of the eigenvalues of an estimated g_yy
    z          about the solution of g_yy z = f_y, for a hypergradient with a warm start

L comes from one power iteration step per round. Another product, along z, estimates in how many
rounds y follows x; if y lags, the agent works locally (`local_solution`).
"""

import math
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from ...auto.step_learning import TINY
from ...core import pytrees
from ...core.pytrees import Number, Tree
from ...interface.round_interface import Method
from ...problem import Problem
from ...schedules.deferred import Deferred, ResolutionContext, ResolvedValue, first_round
from ...schedules.learned import learned_names
from .learnable import LearnableMethod
from .learned_stage import LearnedStepsStage
from .learned_state import LearnedStepsState, make_state
from .learned_step import initial_memory
from .lower_curvature import MARGIN, Curvature, initial_curvature
from .variables import STATIC

SAFETY = 2.0  # ratio of the bound of the chain to L
FLOOR = 1e-3  # relative to L
MOST_CAUTION = 4.0  # limit for y and z after rollbacks: if they lag, x overshoots at any step
WARM_UP = 4  # steps of y before x moves, if y has no local solution


@pytrees.pytree
@dataclass(frozen=True)
class LearnedStepsAlgorithm(Method):
    """A method with learned numbers."""

    method: LearnableMethod
    share: Any  # steps of y and z on this network, relative to 1 / (MARGIN L)
    caution: Any = 1.0  # above 1 after a rollback: shorter steps
    first_round: Any = 0  # in which learning begins
    level: str = field(default="personal", metadata=STATIC)
    tracks_direction: bool = field(default=True, metadata=STATIC)  # else averages it each round

    @property
    def learned_names(self) -> set[str]:
        return learned_names(self.method)

    @property
    def batch(self) -> int:
        return self.method.batch

    @property
    def lower_levels(self) -> tuple[str, ...]:
        return self.method.lower_levels

    @property
    def networks(self) -> str:
        return self.method.networks

    @property
    def hypergradient(self) -> Any:
        return self.method.hypergradient

    @property
    def needs_strong_convexity(self) -> bool:
        return self.method.needs_strong_convexity

    @property
    def privacy(self) -> Any:
        return self.method.privacy

    def with_estimator(self, estimator: Any) -> "LearnedStepsAlgorithm":
        method = self.method.with_estimator(estimator)
        assert isinstance(method, LearnableMethod)
        return replace(self, method=method)

    @property
    def stages(self) -> tuple["LearnedStepsStage", ...]:
        return tuple(LearnedStepsStage(self, k) for k in range(len(self.method.stages)))

    @property
    def lower_steps(self) -> int:
        """Steps of y per round."""
        return max(stage.repeats for stage in self.method.stages)

    @property
    def needs_z(self) -> bool:
        """Whether z is needed: for the hypergradient, or to estimate the lag of y."""
        return bool({"alpha", "z"} & self.learned_names)

    @property
    def works_locally(self) -> bool:
        """Whether to solve for y when it lags: y is personal and alpha is learned."""
        return self.level == "personal" and "alpha" in self.learned_names

    @property
    def first_move(self) -> int:
        """First round in which x moves."""
        return math.ceil(WARM_UP / self.lower_steps) if self.level == "common" else 0

    @property
    def lower_caution(self) -> Any:
        """Factor by which steps of y and z are shorter after rollbacks."""
        return jnp.minimum(self.caution, MOST_CAUTION)

    def with_scaled_steps(self, factor: Number) -> "LearnedStepsAlgorithm":
        """Return the method with steps `factor` times as long."""
        method = self.method.with_scaled_steps(factor)
        assert isinstance(method, LearnableMethod)  # one without steps has none to learn
        return replace(self, method=method, caution=self.caution / factor)

    def with_robust_mixing(self) -> "LearnedStepsAlgorithm":
        """Return the method for robust mixing, which does not preserve sums.

        Directions are averaged in every round instead of tracked, so that no error accumulates.
        """
        return replace(self, tracks_direction=False)

    def schedule_values(self, t: Number) -> dict[str, Number]:
        """Return the numbers that are not learned."""
        values = self.method.schedule_values(t)
        return {name: value for name, value in values.items() if not learned_names(value)}

    def learned_values(self, state: LearnedStepsState) -> dict[str, jax.Array]:
        """Return step sizes, as recorded in the history."""
        steps = {}
        if state.step is not None:
            steps["alpha"] = state.step.scalars.alpha
        if state.curvature is not None and "beta" in self.learned_names:
            is_known = state.curvature.largest > 0
            steps["beta"] = jnp.where(is_known, self.values_at(state.curvature)["beta"], 0.0)
        return steps

    def values_at(self, curvature: Curvature | None) -> dict[str, Any]:
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

    def restart_trackers(self, state: LearnedStepsState) -> LearnedStepsState | None:
        """Return the state after a change of members; each agent keeps its own curvature.

        alpha is learned again, since other members have another objective.
        """
        method, start = self.method.restart_trackers(state.method), self.init(state.x, state.y)
        curvature = state.curvature
        if curvature is not None and start.curvature is not None:
            curvature = curvature._replace(work=start.curvature.work)
        return None if method is None else make_state(method, curvature, start.step)

    def init(self, x: Tree, y: Tree) -> LearnedStepsState:
        method = self.method.init(x, y)
        step = initial_memory(x) if "alpha" in self.learned_names else None
        curvature = None
        if self.level != "none":
            zero = jnp.zeros((), jnp.result_type(*jax.tree.leaves(x)))
            carries_z = self.needs_z and self.method.auxiliary(method) is None
            curvature = initial_curvature(y, zero, carries_z)
        return make_state(method, curvature, step)


def with_learned_steps(method: LearnableMethod, problem: Problem, share: float) -> Method:
    """Wrap a method that leaves numbers open, so that it learns them; return others unchanged.

    `share`: step of y with this method's communication rule, relative to 1 / (MARGIN L).
    """
    if not learned_names(method):
        return method
    stable_share: Any = 1.0
    if problem.lower_level == "common":
        stable_share = Deferred("_share_of_beta", partial(_stable_share, share=share))
    level = problem.lower_level
    return LearnedStepsAlgorithm(method, stable_share, first_round=first_round, level=level)


def _stable_share(context: ResolutionContext, share: float) -> ResolvedValue:
    """Return the share of 1 / (MARGIN L) that is stable for gradient tracking on this network."""
    if context.network is None or share == 1.0:
        return ResolvedValue(share, lasting=True)
    network = context.network.with_damped_weights(0, 25)
    stable = MARGIN * network.tracking_limits["atc"] / 2
    return ResolvedValue(min(share / network.step_inflation, stable), lasting=True)
