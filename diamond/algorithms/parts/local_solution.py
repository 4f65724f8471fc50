"""Local work: an agent solves for its y and z if gradient steps lag behind x.

z solves g_yy z = f_y. Gradient steps relax along z in

    lag = MARGIN L / (z' g_yy z / ||z||^2),   L the largest eigenvalue of g_yy

rounds. If that exceeds LAGGING rounds, the agent solves for y and z by inexact Newton steps
(`diamond.auto.local_solver`), and measures the change of its hypergradient on the same rows. If the
change is small, the agent waits twice as many rounds before it tries again. Nothing of this is
sent.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from ...auto.local_solver import (
    AT_START,
    LATER,
    LocalSolution,
    run_if,
    solve_locally,
    takes_all_rows,
)
from ...auto.step_learning import TINY
from ...core import pytrees
from ...core.cost_counter import Cost
from ...core.pytrees import Number, Tree
from ...core.sampling import Sample
from ...problem import Objectives

LAGGING = 10.0  # rounds of relaxation of z from which local work is tried
USELESS, USEFUL = 0.8, 0.5  # similarity of the hypergradient before and after local work
LONGEST_REST = 15.0  # most rounds between two local solutions
EXPLODED = 10.0  # growth of ||g_y|| over its start that triggers local work
BATCHES_AT_START, BATCHES = 8, 64  # most mini-batches of local work
BUDGET = 30.0  # most local work, relative to the gradient work of the rounds it serves


class WorkMemory(NamedTuple):
    """Memory of an agent's local work."""

    reference: jax.Array  # ||g_y|| at the start
    residual: jax.Array  # ||g_y|| on the last mini-batch
    rest: jax.Array  # rounds between local solutions
    wait: jax.Array  # rounds left until the next one

    @property
    def solved(self) -> jax.Array:
        """Whether y and z were solved for in this round."""
        return self.wait == self.rest


class LocalWorkResult(NamedTuple):
    """y and z after local work, and its cost."""

    y: Tree
    z: Tree
    memory: WorkMemory
    cost: Cost


def work_locally(
    problem: Objectives,
    point: tuple[Tree, Tree, Tree],
    memory: WorkMemory,
    lag: jax.Array,
    t: Number,
    sample: Sample,
) -> LocalWorkResult:
    """Solve for y and z at `point` = (x, y, z) if they lag, and in round 0."""
    x, y, z = point
    zero = 0 * memory.rest.astype(jnp.int32)
    unchanged = LocalWorkResult(y, z, memory._replace(wait=memory.wait - 1), Cost(*[zero] * 4))
    lagging = (lag > LAGGING) & (memory.wait <= 0)
    needed = lagging | (memory.residual > EXPLODED * memory.reference)
    started = pytrees.mapped_with(jnp.asarray(t == 0), memory.rest)

    solve = lambda *how: solve_locally(problem, x, y, z, sample, *how)

    def settled(solution: LocalSolution) -> LocalWorkResult:
        new_memory = memory._replace(reference=solution.reference)
        return LocalWorkResult(solution.y, solution.z, new_memory, solution.cost)

    def improved(solution: LocalSolution) -> LocalWorkResult:
        return _rest_after(problem, point, memory, solution, sample=sample)

    def settled_or_improved() -> LocalWorkResult:
        limits = jax.tree.map(lambda *pair: jnp.where(started, *pair), AT_START, LATER)
        solution = solve(BATCHES, limits)
        return run_if(~started, lambda: improved(solution), settled(solution))

    if takes_all_rows(
        problem, sample, BATCHES_AT_START
    ):  # one solver then compiles faster than two
        return run_if(needed | started, settled_or_improved, unchanged)
    first = run_if(started, lambda: settled(solve(BATCHES_AT_START, AT_START)), unchanged)
    return run_if(needed & ~started, lambda: improved(solve(BATCHES, LATER)), first)


def _rest_after(
    problem: Objectives,
    point: tuple[Tree, Tree, Tree],
    memory: WorkMemory,
    solution: LocalSolution,
    *,
    sample: Sample,
) -> LocalWorkResult:
    """Return the solution, and how long the agent rests: longer if it changed little."""
    x, y, z = point

    def hypergradient(y: Tree, z: Tree) -> Tree:
        f_x = jax.grad(problem.f, 0)(x, y, sample.upper)
        g_y = lambda x: jax.grad(problem.g, 1)(x, y, sample.cross)
        return pytrees.sub(f_x, jax.vjp(g_y, x)[1](z)[0])

    before, after = hypergradient(y, z), hypergradient(solution.y, solution.z)
    larger = jnp.maximum(pytrees.dot(before, before), pytrees.dot(after, after))
    similarity = pytrees.dot(before, after) / (larger + TINY)
    longer = jnp.minimum(2 * memory.rest + 1, LONGEST_REST)
    rest = jnp.where(similarity < USEFUL, 0.0, memory.rest)
    rest = jnp.where(similarity > USELESS, longer, rest)
    upper, batch = problem.valid.size(sample.upper), problem.train.size(sample.cross)
    rounds = (solution.cost.gradients + solution.cost.hvps) // (BUDGET * (upper + 3 * batch))
    rest = jnp.maximum(rest, rounds.astype(rest.dtype))
    spent = pytrees.add(solution.cost, Cost(0, upper, 0, batch))
    rested = memory._replace(rest=rest, wait=rest)
    return LocalWorkResult(solution.y, solution.z, rested, spent)
