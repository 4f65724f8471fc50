"""Solution of a lower level at a point x: y near y*(x), and z with g_yy z = f_y.

The solver asks for one derivative at a time and continues with the answer. For a personal lower
level the agent answers itself; for a common one the answer is the mean over all agents, one
exchange each.

    y   inexact Newton steps, by conjugate gradients and a line search on the slope of g
    z   conjugate gradients with the same matrix, until the hypergradient is accurate

Conjugate gradients stop where another step would add little to the value of the quadratic model
(Nash and Sofer, 1990): a test of the residual would stop in the steep directions, while x lives in
the flat ones. All solutions share one preconditioner, the pairs of earlier solutions.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from ..core.pytrees import select
from .curvature_pairs import (
    CurvaturePairs,
    append,
    apply_inverse,
    diagonal_of,
    divide,
    dot,
    merge,
    no_pairs,
    norm,
)
from .local_solver import run_if
from .sampled_losses import SampledLosses, Vector

PRODUCTS = 200  # most products of one solution
SEARCHES = 20  # most gradients of a line search
OVERSHOOT = 0.5  # largest slope behind the minimum of a line, relative to the slope at its start
Z_SOLUTIONS = 4  # most solutions for z
Z_END = 0.2  # largest residual of z, relative to f_y
Z_START, Z_REACHED = 0.5, 0.05  # residuals of z to begin and to reach, relative to the largest
NEGATIVE = 1e-3  # cosine of a direction and its product: negative curvature beyond rounding
EXTRA_STEPS = 6  # of Newton, until the value is accurate

# Phases, by the derivative that is asked for.
GRADIENT, LINE, PRODUCT, UPPER, RESIDUAL, CROSS, RESPONSE, CURVATURE, FINISHED = range(9)
NEWTON, ADJOINT = range(2)  # purposes of a linear solution


class LowerTask(NamedTuple):
    """A task of the solver: a point, and the accuracy of y and z there."""

    x: Vector
    direction: Vector  # of x, of unit length; only used by a probe
    is_probe: jax.Array  # only measure the curvature of the objective along the direction
    enough: jax.Array  # smallest share of a step of conjugate gradients in the model's value
    drop: jax.Array  # factor to which Newton's steps reduce ||g_y||
    newton_steps: jax.Array
    relative: jax.Array  # factor of all tolerances of z
    z_error: jax.Array  # largest residual of z for an accurate hypergradient, relative to f_y
    value_error: jax.Array  # largest |z' g_y|; infinite where no values are compared


class LinearSolution(NamedTuple):
    """Conjugate gradients in progress, for a right-hand side of unit length."""

    purpose: jax.Array
    scale: jax.Array  # length of the right-hand side
    tolerance: jax.Array
    v: Vector
    r: Vector
    p: Vector
    rz: jax.Array
    value: jax.Array  # of the quadratic model
    pairs: CurvaturePairs
    products: jax.Array


class LowerSolution(NamedTuple):
    """State of the solver."""

    phase: jax.Array
    y: Vector
    z: Vector
    pairs: CurvaturePairs
    linear: LinearSolution
    g: Vector  # g_y at y
    move: Vector  # Newton's direction
    share: jax.Array  # of the direction in a trial
    trials: jax.Array
    steps: jax.Array
    first: jax.Array  # ||g_y|| at the start
    value: jax.Array  # f
    f_x: Vector
    f_y: Vector
    residual: Vector  # f_y - g_yy z
    hypergradient: Vector  # f_x - g_xy z
    cross_size: jax.Array  # ||g_xy z||
    z_solutions: jax.Array
    curvature: jax.Array  # of the objective along the direction of a probe
    shift: jax.Array  # change of g_y along it
    has_negative_curvature: jax.Array  # 1 if g_yy has a direction of negative curvature, else 0


class Answer(NamedTuple):
    """A derivative: a number, and a vector as long as the longer of x and y."""

    vector: Vector
    number: jax.Array


def begin(
    task: LowerTask, y: Vector, z: Vector, pairs: CurvaturePairs, has_lower: bool
) -> LowerSolution:
    """Return the solver before its first question."""
    zero, none = 0 * jnp.sum(task.x), 0 * y
    count = jnp.int32(zero)
    linear = LinearSolution(
        count, zero, zero, none, none, none, zero, zero, no_pairs(len(pairs.steps), y), count
    )
    first = jnp.where(task.is_probe, RESPONSE if has_lower else CURVATURE, GRADIENT)
    phase = jnp.where(~task.is_probe & (not has_lower), UPPER, first) + count
    none_x = 0 * task.x
    return LowerSolution(
        phase, y, z, pairs, linear, none, none, zero, count, count, zero, zero, none_x, none, none,
        none_x, zero, count, zero, zero, zero,
    )  # fmt: skip


def answer(losses: SampledLosses, task: LowerTask, s: LowerSolution) -> tuple[Answer, Vector]:
    """Return the derivative that the solver asks for, on the agent's rows, and f_x."""
    x, y, phase = task.x, s.y, s.phase
    size = max(x.size, y.size)
    pad = lambda v: jnp.pad(v, (0, size - v.size))
    has_lower = losses.problem.lower_level != "none"
    result, f_x = Answer(pad(0 * x), 0 * s.value), s.f_x

    def evaluate_upper() -> tuple[Answer, Vector]:
        value, f_x, f_y = losses.upper(x, y)
        return Answer(pad(f_y), value), f_x

    def multiply_upper() -> Answer:
        along_x, along_y = losses.upper_product(x, y, task.direction, -s.move)
        return result._replace(number=dot(task.direction, along_x) - dot(s.move, along_y))

    result, f_x = run_if(phase == UPPER, evaluate_upper, (result, f_x))
    result = run_if(phase == CURVATURE, multiply_upper, result)
    if not has_lower:
        return result._replace(vector=jnp.where(phase == CROSS, pad(f_x), result.vector)), f_x
    vector, number = result
    gradient = lambda: pad(losses.lower_gradient(x, y - s.share * s.move))
    vector = run_if((phase == GRADIENT) | (phase == LINE), gradient, vector)
    factor = jnp.where(phase == RESIDUAL, s.z, s.linear.p)
    product = lambda: pad(losses.product(x, y, factor))
    vector = run_if((phase == PRODUCT) | (phase == RESIDUAL), product, vector)

    def evaluate_hypergradient() -> Answer:
        along_z = losses.cross_product(x, y, s.z)
        return Answer(pad(f_x - along_z), norm(along_z))

    vector, number = run_if(phase == CROSS, evaluate_hypergradient, Answer(vector, number))
    response = lambda: pad(losses.response(x, y, task.direction))
    vector = run_if(phase == RESPONSE, response, vector)
    return Answer(vector, number), f_x


def advance(task: LowerTask, s: LowerSolution, answer: Answer) -> LowerSolution:
    """Return the solver after an answer, with its next question."""
    phase, linear, eps = s.phase, s.linear, jnp.finfo(s.y.dtype).eps
    of_y, of_x = answer.vector[: s.y.size], answer.vector[: task.x.size]
    is_gradient, is_line, is_product = phase == GRADIENT, phase == LINE, phase == PRODUCT
    is_upper, is_residual, is_cross = phase == UPPER, phase == RESIDUAL, phase == CROSS
    is_response, is_curvature = phase == RESPONSE, phase == CURVATURE

    # Line search: accept where the slope at the end is not far behind the minimum.
    slope, far_slope = dot(s.g, s.move), dot(of_y, s.move)
    is_step = is_line & (-far_slope <= OVERSHOOT * slope)
    trials = jnp.where(is_line, s.trials + 1, s.trials)
    has_failed = is_line & ~is_step & (trials >= SEARCHES)
    secant = slope / (slope - far_slope)
    factor = jnp.clip(jnp.where(jnp.isfinite(secant), secant, 0), 0.1, 0.5)
    y = jnp.where(is_step, s.y - s.share * s.move, s.y)
    g = jnp.where(is_step | is_gradient, of_y, s.g)
    first = jnp.where(is_gradient, norm(of_y), s.first)
    steps = s.steps + is_step
    share = jnp.where(is_line & ~is_step, factor * s.share, s.share)

    # After a step: another one, or the upper level.
    size = norm(g)
    is_unsettled = (steps < task.newton_steps) & (size > task.drop * first)
    is_inexact = jnp.abs(dot(s.z, g)) > task.value_error
    needs_step = (size > 0) & (steps < task.newton_steps + EXTRA_STEPS)
    needs_step &= is_unsettled | is_inexact
    begins_newton = (is_gradient | is_step) & needs_step
    asks_upper = ((is_gradient | is_step) & ~needs_step) | has_failed

    # Conjugate gradients: one step, or the end of the solution. Along a direction without
    # curvature the model would gain beyond all measure. Coordinates that no row of the sample
    # depends on (a category that it does not have) stay as they are.
    is_unknown = is_product & (of_y == 0) & (linear.p != 0)
    direction = jnp.where(is_unknown, 0, linear.p)
    curvature = dot(direction, of_y)
    along = dot(linear.r, direction)
    has_curvature = 0.5 * eps * along**2 <= linear.value * curvature
    has_curvature = (curvature > 0) & ((linear.products == 0) | has_curvature)
    works = is_product & has_curvature & jnp.all(jnp.isfinite(of_y))
    has_negative_curvature = is_product & (curvature < -NEGATIVE * norm(direction) * norm(of_y))
    length = jnp.where(works, along / jnp.where(works, curvature, 1), 0)
    gain = 0.5 * length * along
    value = linear.value + gain
    count = linear.products + is_product
    added = select(works, append(linear.pairs, direction, of_y), linear.pairs)
    v = linear.v + length * direction
    r = jnp.where(works, linear.r - length * of_y, linear.r)
    r = jnp.where(is_unknown, 0, r)

    # z: its residual, and whether it is solved for again.
    hypergradient = jnp.where(is_cross, of_x, s.hypergradient)
    f_y = jnp.where(is_upper, of_y, s.f_y)
    residual = jnp.where(is_upper, of_y, jnp.where(is_residual, s.f_y - of_y, s.residual))
    size_f = norm(f_y)
    restarts = is_residual & ~(norm(residual) <= size_f)  # z of another sample is worse than none
    residual, known_z = jnp.where(restarts, f_y, residual), jnp.where(restarts, 0, s.z)
    left = norm(residual)
    asks_residual = is_upper & jnp.any(s.z != 0)
    z_solutions = s.z_solutions + is_cross
    most_left = jnp.minimum(Z_END, task.z_error) * task.relative * size_f
    is_settled = (left <= most_left) | (z_solutions >= Z_SOLUTIONS)
    begins_adjoint = (is_upper & ~asks_residual) | is_residual | (is_cross & ~is_settled)
    z_tolerance = jnp.where(left > Z_START * most_left, Z_REACHED * most_left / left, 2.0)

    # The next right-hand side, of unit length, and one application of the preconditioner.
    begins = begins_newton | begins_adjoint
    b = jnp.where(begins_newton, g, jnp.where(is_response, of_y, residual))
    scale = norm(b)
    scale = jnp.where(scale > 0, scale, 1)
    r = jnp.where(begins | is_response, divide(b, scale), r)
    diagonal = diagonal_of(s.pairs)
    z_of_r = apply_inverse(s.pairs, r, diagonal)
    rz = dot(r, z_of_r)
    is_usable = jnp.isfinite(rz) & (rz > 0)  # else the pairs contradict each other
    z_of_r, rz = jnp.where(is_usable, z_of_r, r), jnp.where(is_usable, rz, dot(r, r))
    known_pairs = select(is_usable | ~begins, s.pairs, no_pairs(len(s.pairs.steps), s.y))
    is_small = (count * gain <= task.enough * value) | (norm(r) <= linear.tolerance)
    goes_on = works & ~is_small & (count < PRODUCTS) & (rz > 0)
    p = jnp.where(begins, z_of_r, z_of_r + rz / jnp.where(linear.rz > 0, linear.rz, 1) * direction)
    tolerance = jnp.where(begins_adjoint, z_tolerance, 1e-6)
    purpose = jnp.where(begins, jnp.where(begins_newton, NEWTON, ADJOINT), linear.purpose)
    starts = begins & (rz > 0) & (tolerance < 1)
    ends = (begins & ~starts) | (is_product & ~goes_on)
    fresh = lambda old: jnp.where(begins, jnp.zeros_like(old), old)
    zeros = no_pairs(len(s.pairs.steps), s.y)
    linear = LinearSolution(
        purpose,
        jnp.where(begins, scale, linear.scale),
        jnp.where(begins, tolerance, linear.tolerance),
        fresh(v),
        r,
        jnp.where(begins | goes_on, p, linear.p),
        jnp.where(begins | goes_on, rz, linear.rz),
        fresh(value),
        select(begins, zeros, added),
        fresh(count),
    )

    # The end of a linear solution.
    solution = linear.scale * linear.v
    pairs = select(ends, merge(known_pairs, linear.pairs, linear.products), known_pairs)
    ends_newton, ends_adjoint = ends & (purpose == NEWTON), ends & (purpose == ADJOINT)
    is_downhill = dot(g, solution) > 0
    move = jnp.where(ends_newton, jnp.where(is_downhill, solution, g), s.move)
    has_pairs = jnp.any(s.pairs.images[-1] != 0)  # a probe needs no more than their estimate
    move = jnp.where(is_response, jnp.where(has_pairs, scale, 0) * z_of_r, move)
    z = jnp.where(ends_adjoint, known_z + solution, known_z)
    residual = jnp.where(ends_adjoint, linear.scale * linear.r, residual)

    next_phase = jnp.select(
        [
            starts | goes_on,
            ends_newton | (is_line & ~is_step & ~has_failed),
            asks_upper,
            asks_residual,
            ends_adjoint,
            is_response,
        ],
        [PRODUCT, LINE, UPPER, RESIDUAL, CROSS, CURVATURE],
        FINISHED,
    )
    return LowerSolution(
        phase=next_phase.astype(phase.dtype),
        y=y,
        z=z,
        pairs=pairs,
        linear=linear,
        g=g,
        move=move,
        share=jnp.where(ends_newton, 1, share),
        trials=jnp.where(ends_newton, 0, trials),
        steps=steps,
        first=first,
        value=jnp.where(is_upper, answer.number, s.value),
        f_x=s.f_x,
        f_y=f_y,
        residual=residual,
        hypergradient=hypergradient,
        cross_size=jnp.where(is_cross, answer.number, s.cross_size),
        z_solutions=z_solutions,
        curvature=jnp.where(is_curvature, answer.number, s.curvature),
        shift=jnp.where(is_response, norm(of_y), s.shift),
        has_negative_curvature=jnp.where(has_negative_curvature, 1, s.has_negative_curvature),
    )


def cost_of(losses: SampledLosses, phase: jax.Array) -> jax.Array:
    """Return gradients, and products with g_yy and g_xy, of the answer in this phase."""
    train, valid = losses.train_rows, losses.valid_rows
    is_any = lambda *phases: jnp.any(phase == jnp.array(phases))
    has_lower = losses.problem.lower_level != "none"
    gradients = train * is_any(GRADIENT, LINE) + valid * is_any(UPPER)
    products = train * is_any(PRODUCT, RESIDUAL) + valid * is_any(CURVATURE)
    return jnp.stack([gradients, products, train * is_any(CROSS, RESPONSE) * has_lower])


def solve_locally(
    losses: SampledLosses, task: LowerTask, start: LowerSolution
) -> tuple[LowerSolution, jax.Array]:
    """Answer all questions on the agent's rows; also return their costs."""

    def is_unfinished(carry: Any) -> jax.Array:
        return carry[0].phase != FINISHED

    def ask(carry: tuple[LowerSolution, jax.Array]) -> tuple[LowerSolution, jax.Array]:
        s, cost = carry
        given, f_x = answer(losses, task, s)
        after = advance(task, s._replace(f_x=f_x), given)
        return after, cost + cost_of(losses, s.phase)

    cost = jnp.zeros(3, jnp.int32) + 0 * start.phase
    return jax.lax.while_loop(is_unfinished, ask, (start, cost))
