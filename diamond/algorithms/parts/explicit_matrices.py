"""g_xy and g_yy as explicit matrices, for methods with small y."""

from collections import namedtuple
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

from ...core import pytrees
from ...core.cost_counter import Cost
from ...core.pytrees import Number, Tree
from ...core.sampling import Sample
from ...interface.round_interface import Message
from ...problem import Objectives
from ...schedules.step_schedules import Schedule, weight
from .single_stage import SingleStageMethod

LARGEST_Y = 2000  # most numbers in y: g_yy has the square of that


class Ingredients(NamedTuple):
    """Parts of a hypergradient, with x and y as vectors."""

    f_x: jax.Array
    f_y: jax.Array
    g_y: jax.Array
    g_xy: jax.Array  # (numbers in x, numbers in y)
    g_yy: jax.Array


def ingredients(problem: Objectives, x: Tree, y: Tree, sample: Sample) -> tuple[Ingredients, Cost]:
    """Compute all parts at (x, y): those of f on xi, those of g on zeta.

    The matrices take as many products as y has numbers.
    """
    (a, unflat_x), (b, unflat_y) = ravel_pytree(x), ravel_pytree(y)
    if b.size > LARGEST_Y:
        raise ValueError(
            f"y has {b.size} numbers, and this method keeps g_yy as a matrix: it takes {LARGEST_Y} "
            f"at most; use a method without matrices"
        )
    f = lambda a, b: problem.f(unflat_x(a), unflat_y(b), sample.upper)
    g = lambda a, b: problem.g(unflat_x(a), unflat_y(b), sample.lower)
    g_y = jax.grad(g, 1)
    products = lambda w: jax.vjp(g_y, a, b)[1](w)
    g_yx, g_yy = jax.vmap(products)(jnp.eye(b.size, dtype=b.dtype))
    f_x, f_y = jax.grad(f, (0, 1))(a, b)
    estimate = Ingredients(f_x, f_y, g_y(a, b), g_yx.T, g_yy)
    upper, lower = problem.valid.size(sample.upper), problem.train.size(sample.lower)
    return estimate, Cost(upper + lower, upper + lower, b.size * lower, b.size * lower)


def zero_ingredients(x: Tree, y: Tree) -> Ingredients:
    """Return zeros."""
    a, b = ravel_pytree(x)[0], ravel_pytree(y)[0]
    g_xy = jnp.zeros((a.size, b.size), b.dtype)
    zeros = jnp.zeros_like
    return Ingredients(zeros(a), zeros(b), zeros(b), g_xy, jnp.zeros((b.size, b.size), b.dtype))


def with_eigenvalue_floor(matrix: jax.Array, floor: Any) -> jax.Array:
    """Return the nearest symmetric matrix without an eigenvalue below `floor`."""
    values, vectors = jnp.linalg.eigh((matrix + matrix.T) / 2)
    raised = jnp.maximum(values, jnp.asarray(floor, values.dtype))
    return (vectors * raised[None]) @ vectors.T


def hypergradient(estimate: Ingredients, floor: Any) -> jax.Array:
    """Return f_x - g_xy [g_yy]^-1 f_y as a vector."""
    return estimate.f_x - estimate.g_xy @ jnp.linalg.solve(
        with_eigenvalue_floor(estimate.g_yy, floor), estimate.f_y
    )


def unravel_like(vector: jax.Array, a: Tree) -> Tree:
    """Return the vector in the structure of a."""
    return ravel_pytree(a)[1](vector)


class AveragesState(namedtuple("AveragesState", ["x", "y", "kept"])):  # names in checkpoints
    """x, y, and the averages over rounds and neighbours."""

    @property
    def averages(self) -> Ingredients:
        """Averages of f_x, f_y, g_y, g_xy and g_yy."""
        return self[2]


class MatrixState(namedtuple("MatrixState", ["x", "y", "last", "kept"])):  # names in checkpoints
    """x and y, those of the previous round, and the estimates with momentum."""

    @property
    def estimates(self) -> Ingredients:
        """Estimates of f_x, f_y, g_y, g_xy and g_yy."""
        return self[3]


@dataclass(frozen=True)
class MatrixMomentum(SingleStageMethod):
    """Method by gossip along f_x - g_xy [g_yy]^-1 f_y, each part with the momentum of eq. (6).

    g_yy has no eigenvalue below `floor`.
    """

    alpha: Schedule
    beta: Schedule
    eta: Schedule
    floor: Any
    batch: int = field(metadata={"static": True})
    lower_levels: tuple[str, ...] = field(default=("personal",), metadata={"static": True})
    SCHEDULES = "alpha", "beta", "eta"

    def init(self, x: Tree, y: Tree) -> MatrixState:
        return MatrixState(x, y, (x, y), zero_ingredients(x, y))

    def estimate(
        self, problem: Objectives, state: MatrixState, t: Number, sample: Sample
    ) -> tuple[Ingredients, Cost]:
        """Estimate all parts with momentum, both points on one sample."""
        new, cost = ingredients(problem, state.x, state.y, sample)
        x, y = state.last
        previous, again = ingredients(problem, x, y, sample)
        estimate = pytrees.axpy(
            1 - weight(self.eta, t), pytrees.sub(state.estimates, previous), new
        )
        return estimate, pytrees.add(cost, again._replace(samples=0))

    def x_direction(self, estimate: Ingredients, state: MatrixState) -> Tree:
        return unravel_like(hypergradient(estimate, self.floor), state.x)

    def outgoing(self, state: MatrixState, estimate: Ingredients, t: Number) -> Message:
        h = self.x_direction(estimate, state)
        return Message(pytrees.axpy(-self.alpha(t), h, state.x))
