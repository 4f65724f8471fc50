"""Local work: an agent solves for its own y and z in rounds in which gradient steps lag behind x.

z solves g_yy z = f_y. Gradient steps relax along z in

    lag = MARGIN L / (z' g_yy z / ||z||^2),   L the largest eigenvalue of g_yy

rounds. Where that is more than LAGGING rounds, the agent solves for y and z by inexact Newton steps
(`diamond.auto.local_solver`), and sees how far that changes its hypergradient, on the same rows.
Where it changes little, the agent rests for twice as many rounds before it tries again. Nothing of
this is sent to anyone.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from ...auto.local_solver import run_if, solve_locally
from ...auto.step_rule import TINY
from ...core import tree
from ...core.cost import Cost
from ...core.sampling import Sample
from ...core.tree import Tree
from ...numbers.schedule import Number
from ...problem import Objectives

LAGGING = 10.0  # rounds in which z relaxes, from which on local work is tried
USELESS, USEFUL = 0.8, 0.5  # similarity of the hypergradient before and after local work
LONGEST_REST = 15.0  # rounds between two local solutions
EXPLODED = 10.0  # times its norm at the start: a lower gradient that asks for local work
BATCHES_AT_START, BATCHES = 8, 64  # mini-batches that local work uses, at most
BUDGET = 30.0  # local work, of the gradient work of the rounds that it is done for, at most


class WorkMemory(NamedTuple):
    """What an agent remembers of its local work."""

    reference: jax.Array  # ||g_y|| at the start
    residual: jax.Array  # ||g_y|| on the last mini-batch
    rest: jax.Array  # rounds to the next local solution,
    wait: jax.Array  # and how many of them are left

    @property
    def solved(self) -> jax.Array:
        """Whether y and z were solved for in this round."""
        return self.wait == self.rest


class Worked(NamedTuple):
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
) -> Worked:
    """Solve for y and z at `point` = (x, y, z) where they lag, and in round 0."""
    x, y, z = point

    def hypergradient(y: Tree, z: Tree) -> Tree:
        f_x = jax.grad(problem.f, 0)(x, y, sample.upper)
        g_y = lambda x: jax.grad(problem.g, 1)(x, y, sample.cross)
        return tree.sub(f_x, jax.vjp(g_y, x)[1](z)[0])

    def work(batches: int, at_start: bool) -> Worked:
        found = solve_locally(problem, x, y, z, sample, batches, at_start)
        if at_start:
            kept = memory._replace(reference=found.reference)
            return Worked(found.y, found.z, kept, found.cost)
        before, after = hypergradient(y, z), hypergradient(found.y, found.z)
        larger = jnp.maximum(tree.dot(before, before), tree.dot(after, after))
        similarity = tree.dot(before, after) / (larger + TINY)
        longer = jnp.minimum(2 * memory.rest + 1, LONGEST_REST)
        rest = jnp.where(similarity < USEFUL, 0.0, memory.rest)
        rest = jnp.where(similarity > USELESS, longer, rest)
        upper, batch = problem.valid.size(sample.upper), problem.train.size(sample.cross)
        rounds = (found.cost.gradients + found.cost.hvps) // (BUDGET * (upper + 3 * batch))
        rest = jnp.maximum(rest, rounds.astype(rest.dtype))
        kept = memory._replace(rest=rest, wait=rest)
        spent = tree.add(found.cost, Cost(0, upper, 0, batch))
        return Worked(found.y, found.z, kept, spent)

    zero = 0 * memory.rest.astype(jnp.int32)
    nothing = Worked(y, z, memory._replace(wait=memory.wait - 1), Cost(*[zero] * 4))
    lagging = (lag > LAGGING) & (memory.wait <= 0)
    needed = lagging | (memory.residual > EXPLODED * memory.reference)
    started = tree.mapped_with(jnp.asarray(t == 0), memory.rest)
    first = run_if(started, lambda: work(BATCHES_AT_START, True), nothing)
    return run_if(needed & ~started, lambda: work(BATCHES, False), first)
