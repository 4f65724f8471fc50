"""Length of a step of x before the objective is known, from probes of a gradient.

A step that changes the lower gradient g_y (f_x without a lower level) by more than a share of its
norm leads to where y and the hypergradient are unknown. The length is divided by 4 until the change
is small enough.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from ..core import pytrees
from ..core.cost_counter import Cost
from ..core.linear_solvers import conjugate_gradient
from ..core.pytrees import Tree
from ..core.sampling import Sample
from ..problem import Objectives
from .local_solver import run_if
from .step_learning import FIRST, GROWTH, TINY, StepScalars

MOST_PROBES = 30
NEWTON = 0.5  # limit of the first step, relative to Newton's step on f
PRODUCTS, RESIDUAL = 10, 0.1  # of conjugate gradients for the response of y


class TrustedLength(NamedTuple):
    """A length, and the gradients computed to find it."""

    length: jax.Array
    probes: jax.Array


def unit_vector(a: Tree) -> Tree:
    """Return a / ||a||, or 0."""
    return pytrees.scale(1 / (pytrees.norm(a) + TINY), a)


def trusted_length(
    gradient: Callable[[Tree], Tree],
    x: Tree,
    start: Tree,
    direction: Tree,
    value: Tree,
    most: jax.Array,
    reference: jax.Array,
    step: StepScalars,
    is_first: jax.Array,
) -> TrustedLength:
    """Return the length of a step against `direction` that changes `gradient` by at most `most`.

    Args:
        value: the gradient at x.
        reference: norm of the gradient at the start; the first step changes it by FIRST.
        step: while ramping, a step is up to GROWTH times as long as the last one.
        is_first: whether x moves for the first time.
    """
    direction_unit, size = unit_vector(direction), pytrees.norm(value)
    slope = lambda: pytrees.norm(jax.jvp(gradient, (x,), (direction_unit,))[1])
    change = run_if(pytrees.mapped_with(is_first, size), slope, jnp.zeros_like(size))
    first_length = _finite_or_default(FIRST * reference / (change + TINY), 1 + pytrees.norm(start))
    longest = jnp.where(is_first, first_length, GROWTH * step.length)
    shift = lambda s: pytrees.norm(
        pytrees.sub(gradient(pytrees.axpy(-s, direction_unit, x)), value)
    )
    return _backtrack(shift, longest, most, step.ramping > 0.5)


def newton_length(
    problem: Objectives, x: Tree, y: Tree, direction: Tree, *, needed: jax.Array, sample: Sample
) -> tuple[jax.Array, jax.Array, Cost]:
    """Return half the length of Newton's step along `direction` on f, with y following linearly.

    y follows a step d of x by r = -[g_yy]^-1 g_yx d, so the curvature of f along (d, r) is that of
    the upper level, except for the curvature of y*(x). The length is infinite if the curvature is
    not positive. Also returns the curvature of g along r, and the cost.
    """
    lower_gradient = lambda x, y: jax.grad(problem.g, 1)(x, y, sample.lower)
    unit, slope = unit_vector(direction), pytrees.norm(direction)
    infinite = jnp.full_like(slope, jnp.inf)

    def measure() -> tuple[jax.Array, jax.Array, jax.Array]:
        product = jax.linearize(lambda y: lower_gradient(x, y), y)[1]
        shift = jax.jvp(lambda x: lower_gradient(x, y), (x,), (unit,))[1]
        response, count = conjugate_gradient(product, shift, PRODUCTS, RESIDUAL)
        tangent = unit, pytrees.scale(-1, response)
        upper = jax.grad(lambda point: problem.f(point[0], point[1], sample.upper))
        curvature = pytrees.dot(tangent, jax.jvp(upper, ((x, y),), (tangent,))[1])
        newton = jnp.where(
            curvature > 0, NEWTON * slope / jnp.where(curvature > 0, curvature, 1.0), jnp.inf
        )
        square = jnp.maximum(pytrees.dot(response, response), TINY)
        return newton, jnp.abs(pytrees.dot(response, shift)) / square, count

    not_needed = infinite, infinite, 0 * slope.astype(jnp.int32)
    length, curvature, count = run_if(pytrees.mapped_with(needed, slope), measure, not_needed)
    rows, upper = problem.train.size(sample.lower), problem.valid.size(sample.upper)
    return length, curvature, Cost(0, 2 * upper * needed, rows * count, rows * needed)


def _backtrack(shift: Any, length: jax.Array, most: jax.Array, needed: jax.Array) -> TrustedLength:
    """Divide the length by 4 until the gradient changes by at most `most`."""

    def too_far(carry: Any) -> jax.Array:
        _, shifted, probes = carry
        return needed & (probes < MOST_PROBES) & ~(shifted <= most)

    def probe(carry: Any) -> Any:
        length, _, probes = carry
        length = jnp.where(probes == 0, length, length / 4)
        return length, shift(length), probes + 1

    begin = length, jnp.full_like(length, jnp.inf), 0 * length.astype(jnp.int32)
    length, _, probes = jax.lax.while_loop(too_far, probe, begin)
    return TrustedLength(length, probes)


def _finite_or_default(length: jax.Array, otherwise: jax.Array) -> jax.Array:
    """Return `length`, or `otherwise` if the gradient does not depend on x."""
    return jnp.where((length > 0) & (length < 1e20), length, otherwise)


def nonzero_reference(reference: jax.Array, curvature: jax.Array, y: Tree) -> jax.Array:
    """Return ||g_y|| at the start; if y started at y*, that of a y with a 10 % error."""
    size = pytrees.norm(y)
    rounding = 1e-6 * curvature * size
    off = 0.1 * curvature * jnp.where(size > 0, size, 1.0)
    return jnp.where(reference > rounding, reference, off)
