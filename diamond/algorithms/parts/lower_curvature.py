"""Curvature of one agent's lower level, learned from one or two products per round.

L, the largest eigenvalue of g_yy, comes from power iteration. Another product, along z, estimates
in how many rounds gradient steps of y follow x.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from ...auto.local_solver import run_if
from ...auto.probed_length import unit_vector
from ...auto.step_learning import TINY
from ...core import pytrees
from ...core.cost_counter import Cost
from ...core.pytrees import Number, Tree
from ...core.sampling import Sample
from ...problem import Objectives
from .local_solution import WorkMemory

MARGIN = 1.5  # ratio of 1 / L to the steps of y and z
POWER_STEPS_AT_START = 4
MIXED = 0.1  # share of z in power iteration: the steepest direction may change
FORGETTING = 0.99  # decay of the largest curvature per round


class Curvature(NamedTuple):
    """Curvature estimates of an agent's lower level."""

    power_vector: Tree  # estimate of the top eigenvector of g_yy
    largest: jax.Array  # its eigenvalue
    lag: jax.Array  # rounds in which gradient steps relax, along z
    response_lag: jax.Array  # the same along the response of y to the first step of x
    z: Tree  # estimate of the solution of g_yy z = f_y; None if the method has z
    work: WorkMemory

    @property
    def slowest(self) -> jax.Array:
        """Rounds in which gradient steps of y relax."""
        return jnp.maximum(self.lag, self.response_lag)


def initial_curvature(y: Tree, zero: jax.Array, carries_z: bool) -> Curvature:
    """Return the curvature before the first round; `zero` has the type of the numbers."""
    start_vector = lambda a: jnp.cos(1.7 * jnp.arange(a.size, dtype=a.dtype) + 0.3).reshape(a.shape)
    z = pytrees.zeros(y) if carries_z else None
    vector = unit_vector(jax.tree.map(start_vector, y))
    return Curvature(vector, zero, zero + 1, zero, z, WorkMemory(*[zero] * 4))


class CurvatureLearning(NamedTuple):
    """Rule by which a stage learns the curvature.

    Attributes:
        step: (share, caution), see `rounds_to_relax`.
        moves_x: whether the stage moves x; other stages learn in round 0 only.
        needs_z: whether the lag along z, or z itself, is needed.
        carries_z: whether z is carried here, because the method has none.
    """

    step: tuple[Any, Any]
    moves_x: bool
    needs_z: bool
    carries_z: bool

    def update(
        self,
        problem: Objectives,
        point: tuple[Tree, Tree],
        z: Tree | None,
        previous: Curvature,
        t: Number,
        sample: Sample,
    ) -> tuple[Curvature, Cost]:
        """Make a step of power iteration and a product along z; more of both at the start."""
        x, y = point
        carries_z = self.carries_z
        z = previous.z if carries_z else z
        if z is None:
            z = pytrees.zeros(y)
        gradient = lambda y: jax.grad(problem.g, 1)(x, y, sample.lower)
        product = lambda q: jax.jvp(gradient, (y,), (q,))[1]
        first = jnp.asarray(t == 0) | (previous.largest == 0)  # an agent may join later
        rows, upper = problem.train.size(sample.lower), problem.valid.size(sample.upper)
        along, size = unit_vector(z), pytrees.norm(z)
        steps = jnp.where(first, POWER_STEPS_AT_START, 1 if self.moves_x else 0)
        makes_both = first | carries_z  # alternate, if the method has its own product along z
        power_steps, uses_product = (
            jnp.where(makes_both | (t % 2 == 0), steps, 0),
            makes_both | (t % 2 == 1),
        )
        if not self.needs_z:
            power_steps, uses_product = steps, jnp.zeros_like(first)
        vector = unit_vector(pytrees.axpy(MIXED, along, previous.power_vector))
        vector = jax.lax.fori_loop(0, power_steps, lambda _, q: product(unit_vector(q)), vector)
        vector = pytrees.select(power_steps > 0, vector, previous.power_vector)
        needed = pytrees.mapped_with(uses_product & (steps > 0), size)
        product_along_z = run_if(needed, lambda: product(along), pytrees.zeros(z))
        steepest = jnp.where(power_steps > 0, pytrees.norm(vector), 0.0)
        measured = jnp.maximum(steepest, pytrees.norm(product_along_z))
        largest = jnp.maximum(FORGETTING * previous.largest, measured)
        lag = rounds_to_relax(self.step, largest, jnp.abs(pytrees.dot(along, product_along_z)))
        old_weight = 0.9 if carries_z else 0.8
        lag = jnp.where(first, lag, old_weight * previous.lag + (1 - old_weight) * lag)
        lag = jnp.where(uses_product, jnp.where(size > 0, lag, 1.0), previous.lag)
        cost = Cost(0, 0, rows * (power_steps + uses_product * (steps > 0)))
        new_z = None
        if carries_z:
            f_y = jax.grad(problem.f, 1)(x, y, sample.upper)
            residual = pytrees.sub(pytrees.scale(size, product_along_z), f_y)
            new_z = pytrees.axpy(-1 / (MARGIN * largest + TINY), residual, z)
            cost = cost._replace(gradients=upper * (steps > 0))
        updated = Curvature(
            unit_vector(vector), largest, lag, previous.response_lag, new_z, previous.work
        )
        return cast_like(pytrees.select(steps > 0, updated, previous), previous), cost


def rounds_to_relax(step: tuple[Any, Any], largest: jax.Array, along: jax.Array) -> jax.Array:
    """Return the rounds in which gradient steps relax along a direction of curvature `along`.

    Args:
        step: (share, caution): the step is share / (caution MARGIN L).
        largest: L.
        along: the curvature along the direction.
    """
    share, caution = step
    return 1 / (share / (caution * MARGIN * largest + TINY) * along + TINY)


def cast_like(new: Tree, old: Tree) -> Tree:
    """Cast `new` to the types of `old`: roots of the integer round number are in double."""
    return jax.tree.map(lambda new, old: jnp.asarray(new, old.dtype), new, old)
