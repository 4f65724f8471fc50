"""Loss monitor: checks the upper loss, and shortens the steps of a run that rolls back.

Steps without curvature (`auto.adaptive_optimizers`) may grow until y, which is not solved for, no
longer follows x. So after rounds 1, 50, 100, 200, 300, ..., every agent evaluates f_i(x_i, y_i) on
its first rows, always the same; l is the mean over the agents. The run rolls back if

    l > l_1 + INCREASE (l_1 - least) + TOLERANCE |l_1|,   l_1: after round 1, least: of all checks

to the state with the least l, or to the start, and continues with STEP_DECREASE times the steps.
Agents that disagree have a lower l than their mean, so l is compared only with the start, where
they agree. The monitor costs one value of f per check. With a common lower level, y is the agent's
own copy. With more than MANY agents, l is not sent, and nothing is monitored.

A run whose x or y is no longer finite rolls back too (`engine/rollback_policy.py`), and continues
with all steps shorter. `MonitorState` has both; it is stored with the estimated numbers of a run,
so that processes with equal numbers act equally.
"""

import math
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass, replace
from typing import Any

import jax
import numpy as np

from ..core import host_transfer
from ..core.cost_counter import Cost
from ..core.pytrees import Tree
from ..hardware.compiler import compile_fast
from ..hardware.device_memory import map_in_groups
from ..hypergradient.diagnostics.lipschitz import with_scaled_lipschitz
from ..problem import Objectives, Rows
from ..schedules.deferred import Deferred, Measurement, ResolutionContext, ResolvedValue
from .rollback_limits import STEP_DECREASE

INCREASE, TOLERANCE = 0.1, 0.05  # relative to the decrease of l, and to l: a rise beyond noise
MOST_LOSS_ROLLBACKS = 4  # most rollbacks if l rises, which also happens while y converges
ROWS = 256  # maximum rows per agent on which f is evaluated
MANY = 64  # maximum number of agents whose values are sent
HUGE = 1e29  # replaces a value that is not finite
EMPTY = -1e30  # marks another agent's value: below any, and finite to be sent
MonitorMemory = MutableMapping[str, ResolvedValue]


def _evaluate(context: ResolutionContext) -> ResolvedValue:
    """Evaluate l at the agents' points, and record it."""
    agents = context.agents
    if context.current_point is None or context.round < 1 or agents > MANY:
        return ResolvedValue(0.0, lasting=agents > MANY)

    def measure() -> Measurement:
        evaluate = lambda rows, point, agents: (*_losses(first_rows(rows(1)), *point), agents)
        losses, counts, indices = context.map_agents(evaluate, context.point)
        values = np.full((len(losses), agents), EMPTY)
        losses = np.nan_to_num(losses, nan=HUGE, posinf=HUGE, neginf=-HUGE)
        values[np.arange(len(losses)), np.asarray(indices)] = losses
        rows = np.asarray(counts, np.int64)
        return values, Cost(samples=rows, gradients=rows)

    values, cost = context.consensus.maximum("loss", measure)
    record_loss(context, float(np.mean(values)))
    return ResolvedValue(0.0, cost, agreed=agents, talks=1)


loss_monitor = Deferred("_loss_monitor", _evaluate)


@compile_fast()
def _losses(first: Objectives, x: Tree, y: Tree) -> tuple[jax.Array, jax.Array]:
    """Return f of every agent on these rows, and the number of rows."""
    evaluate = lambda first, x, y: first.f(x, y, None)
    in_turn = getattr(first.valid, "chunk", None) is not None
    return map_in_groups(evaluate, 1 if in_turn else None)(first, x, y), first.valid.count


def first_rows(objectives: Objectives) -> Objectives:
    """Return the first rows of every agent as all rows; for a stream, drawn rows."""

    def cut(rows: Any, part: int) -> Rows:
        if rows.stored is None:
            return rows.estimation_rows(part, ROWS)
        data = jax.tree.map(lambda a: a[:, :ROWS], rows.data)
        return Rows(
            data, host_transfer.to_device(np.minimum(rows.count, ROWS)), 1, chunk=rows.chunk
        )

    return replace(objectives, train=cut(objectives.train, 0), valid=cut(objectives.valid, 1))


@dataclass(frozen=True)
class MonitorState:
    """What the monitor has seen, and how often the run rolled back."""

    first: float = math.nan  # l after round 1; not a number: no check yet, or not a number then
    latest: float = math.nan  # l at the last check
    least: float = math.nan  # least l since the last rollback
    rises: int = 0  # rollbacks because l had risen
    scale: float = 1.0  # of all steps, after rollbacks because x or y broke
    rolled_back: int = 0  # rounds rolled back

    @classmethod
    def read(cls, memory: Mapping[str, ResolvedValue]) -> "MonitorState":
        """Read the state from the estimated numbers of a run."""
        value = lambda name, default: memory[name].value if name in memory else default
        latest, least = value("_losses", (math.nan, math.nan))
        first, scale = float(value("_began", math.nan)), float(value("shrunk", 1.0))
        rises, rolled_back = int(value("risen", 0)), int(value("lost", 0))
        return cls(first, float(latest), float(least), rises, scale, rolled_back)

    @property
    def is_lowest(self) -> bool:
        """Whether l was at its minimum at the last check."""
        return self.latest <= self.least

    @property
    def increase(self) -> str:
        """Why the run rolls back if l had risen at the last check, else "".

        Also "" if steps were shortened the maximum number of times.
        """
        limit = self.first + INCREASE * (self.first - self.least) + TOLERANCE * abs(self.first)
        is_within = not math.isfinite(self.first) or self.latest <= limit
        if is_within or self.rises == MOST_LOSS_ROLLBACKS:
            return ""
        return (
            f"the upper loss is {self.latest:.4g} on the first rows of each agent, after "
            f"{self.least:.4g} at its least and {self.first:.4g} at the start"
        )

    @property
    def alpha_scale(self) -> float:
        """Factor of alpha after the rollbacks because of the loss."""
        return float(STEP_DECREASE**self.rises)


def record_loss(context: ResolutionContext, loss: float) -> None:
    """Record l at a check."""
    context.memory.setdefault("_began", ResolvedValue(loss, lasting=True))
    least = float(context.earlier_value("_losses", [loss, loss])[1])
    context.memory["_losses"] = ResolvedValue(np.array([loss, min(least, loss)]))


def record_rollback(memory: MonitorMemory, now: int, target: int) -> str:
    """Record a rollback from round `now` to `target` for a risen l; return its message."""
    state = MonitorState.read(memory)
    memory["risen"] = ResolvedValue(state.rises + 1, lasting=True)
    memory["lost"] = ResolvedValue(state.rolled_back + now - target, lasting=True)
    scale = MonitorState.read(memory).alpha_scale
    return f"{state.increase}; back to round {target} with steps {scale:g} times as long"


def record_shrink(memory: MonitorMemory, scale: float, rounds: int) -> None:
    """Record a rollback of `rounds` rounds, after which steps are `scale` times the first."""
    state = MonitorState.read(memory)
    memory["shrunk"] = ResolvedValue(scale, lasting=True)
    memory["lost"] = ResolvedValue(state.rolled_back + rounds, lasting=True)


def scale_steps(algorithm: Any, memory: Mapping[str, ResolvedValue]) -> Any:
    """Return the algorithm with steps scaled by the factor, and L_g by its inverse."""
    state = MonitorState.read(memory)
    scale = state.scale * state.alpha_scale
    return (
        with_scaled_lipschitz(algorithm.with_scaled_steps(scale), 1 / scale)
        if scale < 1
        else algorithm
    )
