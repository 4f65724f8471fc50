"""Loss monitor: checks the upper loss, and shortens the steps of a run that rolls back.

After rounds 1, 50, 100, 200, ..., every agent evaluates its f_i(x_i, y_i) on its first rows, always
the same; l is the mean over the agents. The run rolls back if

    l > l_1 + RISEN (l_1 - least) + SMALL |l_1|,   l_1: after round 1, least: of all checks

to the state with the least l, or to the start, and continues with steps FACTOR times as long.
Agents that disagree have a lower l than their mean, so l is compared only with the start, where
they agree. The monitor costs one value of f per check. With a common lower level no agent knows l,
and with more than MANY agents l is not sent: then nothing is monitored.

The monitor's state is stored with the estimated numbers of a run, so that processes with equal
numbers act equally: "risen", the number of rises; "shrunk", the factor of all steps of a run whose
x or y was no longer finite, which rolls back too (`engine.rollback`); and "lost", the rounds rolled
back.
"""

import math
from collections.abc import MutableMapping, Sequence
from dataclasses import replace
from typing import Any

import jax
import numpy as np

from ..core import host_transfer
from ..core.cost_counter import Cost
from ..core.pytrees import Tree
from ..hardware.compiler import compile_fast
from ..hypergradient.diagnostics.lipschitz import raised
from ..problem import Objectives, Rows
from ..schedules.deferred import Deferred, Measured, ResolutionContext, ResolvedValue

RISEN, SMALL = 0.1, 0.05  # relative to the decrease of l, and to l: a rise beyond noise
FACTOR, SHRINKS = 0.25, 8  # factor of the steps per rollback, and most rollbacks if x or y breaks
MOST_RISEN = 2  # most rollbacks if l rises, which also happens while y converges
EVERY, RECENT = 100, 2  # period and number of the latest states saved for rollbacks
LARGE = 1e2  # times the start: size of x and y that excludes a state from rollbacks
LOST = 1e6  # times the start: counts as broken though finite
GROWN = 3.0  # growth since the last saved state with which a large state is broken
ROWS = 256  # maximum rows per agent on which f is evaluated
MANY = 64  # maximum number of agents whose values are sent
HUGE = 1e29  # replaces a value that is not finite
EMPTY = -1e30  # marks another agent's value: below any, and finite to be sent
Memory = MutableMapping[str, ResolvedValue]
BEGAN, NOW = "_began", "_losses"  # l after round 1; l now, and the least since the last rollback


def _evaluate(setting: ResolutionContext) -> ResolvedValue:
    """Evaluate l at the agents' points, and record it."""
    agents = setting.agents
    if setting.moved is None or setting.round < 1 or agents > MANY:
        return ResolvedValue(0.0, lasting=agents > MANY)

    def measure() -> Measured:
        look = lambda rows, point, agents: (*_losses(first_rows(rows(1)), *point), agents)
        losses, counts, numbers = setting.each(look, setting.point)
        found = np.full((len(losses), agents), EMPTY)
        losses = np.nan_to_num(losses, nan=HUGE, posinf=HUGE, neginf=-HUGE)
        found[np.arange(len(losses)), np.asarray(numbers)] = losses
        rows = np.asarray(counts, np.int64)
        return found, Cost(samples=rows, gradients=rows)

    found, cost = setting.consensus.maximum("loss", measure)
    note(setting, float(np.mean(found)))
    return ResolvedValue(0.0, cost, agreed=agents, talks=1)


loss_monitor = Deferred("_loss_monitor", _evaluate)


@compile_fast()
def _losses(few: Objectives, x: Tree, y: Tree) -> tuple[jax.Array, jax.Array]:
    """Return f of every agent on these rows, and the number of rows."""
    return jax.vmap(lambda few, x, y: few.f(x, y, None))(few, x, y), few.valid.count


def first_rows(objectives: Objectives) -> Objectives:
    """Return the first rows of every agent as all rows; for a stream, drawn rows."""

    def cut(rows: Any, part: int) -> Rows:
        if rows.stored is None:
            return rows.looked_at(part, ROWS)
        data = jax.tree.map(lambda a: a[:, :ROWS], rows.data)
        return Rows(data, host_transfer.to_device(np.minimum(rows.count, ROWS)), 1)

    return replace(objectives, train=cut(objectives.train, 0), valid=cut(objectives.valid, 1))


def note(setting: ResolutionContext, loss: float) -> None:
    """Record l at a check."""
    setting.memory.setdefault(BEGAN, ResolvedValue(loss, lasting=True))
    least = float(setting.before(NOW, [loss, loss])[1])
    setting.memory[NOW] = ResolvedValue(np.array([loss, min(least, loss)]))


def fallen(memory: Memory) -> bool:
    """Return whether l was below its start at the last check; False without a check."""
    return BEGAN in memory and bool(memory[NOW].value[0] < memory[BEGAN].value)


def lowest(memory: Memory) -> bool:
    """Return whether l was at its minimum at the last check."""
    return NOW in memory and bool(memory[NOW].value[0] <= memory[NOW].value[1])


def risen(memory: Memory) -> str:
    """Return why the run rolls back if l had risen at the last check, else "".

    Also "" if steps were shortened the maximum number of times.
    """
    if BEGAN not in memory or not math.isfinite(first := memory[BEGAN].value):
        return ""
    loss, least = memory[NOW].value
    high = first + RISEN * (first - least) + SMALL * abs(first)
    if loss <= high or times(memory) == MOST_RISEN:
        return ""
    return (
        f"the upper loss is {loss:.4g} on the first rows of each agent, after {least:.4g} at its "
        f"least and {first:.4g} at the start"
    )


def times(memory: Memory) -> int:
    """Return how often the run rolled back because l had risen."""
    return int(memory.get("risen", ResolvedValue(0)).value)


def calm(memory: Memory, why: str, now: int, back: int) -> str:
    """Record a rollback from round `now` to `back`, with a smaller alpha; return the message."""
    memory["risen"] = ResolvedValue(times(memory) + 1, lasting=True)
    memory["lost"] = ResolvedValue(lost(memory) + now - back, lasting=True)
    return f"{why}; back to round {back} with steps {share(memory):g} times as long"


def share(memory: Memory) -> float:
    """Return the factor of alpha after these rollbacks."""
    return float(FACTOR ** times(memory))


def size(point: Tree) -> float:
    """Return the largest size of x and y over the agents (first axis)."""
    leaves = jax.tree.leaves(host_transfer.to_host(point))
    with np.errstate(over="ignore"):  # overflow to infinity is a valid size
        each: Any = sum((leaf.reshape(len(leaf), -1) ** 2).sum(1) for leaf in leaves)
        return float(each.max()) ** 0.5


def outgrown(now: float, start: float, before: float, fallen: bool) -> bool:
    """Return whether x and y of size `now` count as broken, though finite.

    `start` and `before` are the sizes at the start and in the last saved state. `fallen`: the
    objective was below its start at the last check. Then x and y may be large, as for small data,
    and are broken only if they keep growing.
    """
    large = LOST * (1 + start)
    return not now < (max(large, GROWN * before) if fallen else large)


def back_to(sizes: Sequence[float], start: float) -> int:
    """Return the index of the saved state to roll back to: the last not large one, or -1.

    `sizes` are those of the saved states, `start` is the size of the start.
    """
    sound = [i for i, size in enumerate(sizes) if size < LARGE * (1 + start)]
    return sound[-1] if sound else -1


def factor(memory: Memory) -> float:
    """Return the factor of the steps relative to the first."""
    return float(memory.get("shrunk", ResolvedValue(1.0)).value)


def lost(memory: Memory) -> int:
    """Return the number of rounds rolled back."""
    return int(memory.get("lost", ResolvedValue(0)).value)


def smaller(factor: float) -> float | None:
    """Return the next smaller factor; None if steps have been shrunk often enough."""
    next_one = factor * FACTOR
    return None if next_one < FACTOR**SHRINKS else next_one


def shrink(memory: Memory, factor: float, rounds: int) -> None:
    """Scale steps to `factor` times the first from the next check on; `rounds` are lost."""
    memory["shrunk"] = ResolvedValue(factor, lasting=True)
    memory["lost"] = ResolvedValue(lost(memory) + rounds, lasting=True)


def scale_steps(algorithm: Any, memory: Memory) -> Any:
    """Return the algorithm with steps scaled by the factor, and L_g by its inverse."""
    by = factor(memory) * share(memory)
    return raised(algorithm.with_scaled_steps(by), 1 / by) if by < 1 else algorithm
