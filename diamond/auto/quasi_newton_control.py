"""Control of quasi-Newton steps of x: which point is evaluated next, and which step is accepted.

All agents hold the same control, because it depends on averages over all agents only. A step s is
accepted if the objective decreases, measured by

    L = f(x, y) - z' g_y(x, y),

whose error is the product of the errors of y and z, so that rough y and z suffice to compare two
points. A change below rounding is taken from the slopes at both ends instead; so that slopes can be
trusted, the error of z stays small beside the gradient. If no step is accepted, the accuracy of y
and z is raised, and the point is evaluated again.

The sample holds the first n rows of each agent. n doubles when the gradient is no larger than its
change at the last doubling; before the first step, until doubling changes the gradient by at most
CLEAR of its norm. The first radius is the smaller of Newton's step with a y that follows x and a
step that changes g_y by FIRST of its norm at the start. No constant has a unit.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from ..core.pytrees import select
from .curvature_pairs import CurvaturePairs, append, apply_inverse, divide, dot, no_pairs, norm
from .sampled_losses import Vector

FIRST = 0.3  # change of g_y by the first step, relative to its norm at the start
PAIRS = 10  # of steps and changes of the gradient
TRIALS = 3  # most refused steps from a point, before its evaluation is repeated
FEWEST, ENOUGH_FOR_Y = 8, 32  # rows of the first sample that determine y
CLEAR = 0.5  # largest change of the first gradient by doubling the sample, relative to its norm
REPEATS = 2  # evaluations with higher accuracy in a row, before the sample grows
FAILURES = 3  # most evaluations with higher accuracy in a row
MOST_REFINEMENTS = 5
FLAT_STEPS = 50  # most steps in a row that gain little, below rounding
STEPS_PER_SAMPLE = 6  # most accepted steps before the sample doubles
STEEPER = 10.0  # largest slope behind a step, relative to that before
RESIDUAL = 100.0  # smallest first radius by g_y, in units of rounding of Newton's step
PLATEAU = 100.0  # smallest decrease of a linear model along Newton's step, in units of |L|, there
ROUNDING = 4.0  # changes of values below so many units of rounding are taken from slopes
SUFFICIENT = 1e-4  # smallest decrease, relative to that of the linear model
FORGET, SMALLEST = 0.8, 1e-4  # decay of the largest gradients, and the smallest scale

# Phases, by what is evaluated.
START, PROBE, TRIAL, RESAMPLE, REFRESH, DONE = range(6)
RUNNING, CONVERGED, STUCK = range(3)  # reasons of the end


class EvaluatedPoint(NamedTuple):
    """Averages over all agents of one evaluation."""

    hypergradient: Vector
    value: jax.Array  # L
    slope: jax.Array  # of the objective at the point, along the direction
    magnitude: jax.Array  # mean |L|
    first_gradient: jax.Array  # mean ||g_y|| before y was improved
    correction: jax.Array  # mean |z' g_y|
    curvature: jax.Array  # of a probe
    shift: jax.Array  # change of g_y along the direction, of a probe
    has_negative_curvature: jax.Array  # share of the agents that met negative curvature of g
    cross_size: jax.Array  # mean ||g_xy z||


class Control(NamedTuple):
    """State of the control."""

    phase: jax.Array
    rows: jax.Array  # rows of the sample
    rows_before: jax.Array  # of the previous sample; 0 for the first
    u: Vector  # hypergradient at x
    size: jax.Array  # ||u||
    relative_size: jax.Array  # relative to the start
    value: jax.Array  # L at x
    d: Vector  # direction
    correction: jax.Array  # mean |z' g_y| at x
    share: jax.Array  # of the direction in the trial
    radius: jax.Array
    pairs: CurvaturePairs
    scale: Vector  # largest recent gradient of each coordinate
    reference: jax.Array  # ||g_y|| at the start
    noise: jax.Array  # change of u by the last doubling of rows; -1 before the first
    steps_here: jax.Array  # accepted steps with this sample
    trials: jax.Array  # refused steps from this point
    flat_steps: jax.Array  # accepted steps in a row that gain little, below rounding
    failures: jax.Array  # evaluations with higher accuracy since the last accepted step
    refinement: jax.Array  # tolerances are divided by 4 so often
    accepted: jax.Array
    refused: jax.Array
    total: jax.Array  # sum of the decreases of accepted steps
    first_size: jax.Array  # ||u|| at the start
    largest_size: jax.Array  # largest ||u||
    reason: jax.Array  # of the end
    has_negative_curvature: jax.Array  # whether an agent met negative curvature of g on all rows
    cross_size: jax.Array  # mean ||g_xy z|| at x


COUNTS = (  # fields of the control that are whole numbers
    *("phase", "rows", "rows_before", "steps_here", "trials", "flat_steps", "failures"),
    *("refinement", "accepted", "refused", "reason", "has_negative_curvature"),
)


def first_rows(
    most_rows: jax.Array, agents: jax.Array, x_size: int, y_size: int, is_common: bool
) -> jax.Array:
    """Return the rows of the first sample: `most_rows`, halved while there are enough.

    Together, the agents need as many rows as there are numbers in x. A sample needs as many as
    there are numbers in y, which g regularizes: from FEWEST to ENOUGH_FOR_Y rows of an agent.
    """
    for_y = jnp.clip(y_size / (agents if is_common else 1), FEWEST, ENOUGH_FOR_Y)
    halvings = jnp.floor(jnp.log2(most_rows / jnp.maximum(for_y, x_size / agents)))
    return jnp.ceil(most_rows / 2.0 ** jnp.maximum(halvings, 0)).astype(jnp.int32)


def begin_control(x: Vector, rows: jax.Array) -> Control:
    """Return the control before the first evaluation, on so many rows of each agent."""
    zero = 0 * jnp.sum(x)
    count, none = jnp.int32(zero), 0 * x
    fields: dict[str, Any] = dict.fromkeys(Control._fields, zero) | dict.fromkeys(COUNTS, count)
    fields |= {"u": none, "d": none, "scale": none, "pairs": no_pairs(PAIRS, x)}
    return Control(**fields | {"phase": count + START, "rows": count + rows, "noise": zero - 1})


def point_of(c: Control, x: Vector) -> Vector:
    """Return the point that is evaluated next."""
    return x + jnp.where(c.phase == TRIAL, c.share, 0) * c.d


def advance_control(
    c: Control, x: Vector, evaluation: EvaluatedPoint, most_rows: jax.Array, *, tolerance: jax.Array
) -> tuple[Control, Vector, jax.Array, jax.Array]:
    """Return the control and x after an evaluation, and whether its y, z and its pairs are used.

    `tolerance`: the run ends when a step decreases the objective by less than this share of the
    whole decrease, at a gradient below its root relative to the largest.
    """
    tiny, eps = jnp.finfo(x.dtype).tiny, jnp.finfo(x.dtype).eps
    positive = lambda a: jnp.maximum(a, tiny)
    h, value = evaluation.hypergradient, evaluation.value
    is_start, is_probe, is_refresh = c.phase == START, c.phase == PROBE, c.phase == REFRESH
    is_trial, is_resample = c.phase == TRIAL, c.phase == RESAMPLE
    slope = dot(c.u, c.d)
    is_rounding = jnp.abs(value - c.value) <= ROUNDING * eps * evaluation.magnitude
    by_slopes = jnp.where(is_trial, c.share * (slope + evaluation.slope) / 2, 0)
    rise = jnp.where(is_rounding, by_slopes, value - c.value)

    # Accept or refuse.
    is_finite = jnp.isfinite(value) & jnp.all(jnp.isfinite(h))
    is_good = is_finite & (slope < 0) & (rise <= SUFFICIENT * c.share * slope)
    is_good &= evaluation.correction <= 0.5 * jnp.abs(rise)
    # A much steeper slope behind a step comes from a degenerate sample.
    is_good &= jnp.abs(evaluation.slope) <= STEEPER * jnp.abs(slope)
    accepts, refuses = is_trial & is_good, is_trial & ~is_good
    is_last = c.rows >= most_rows
    # More accurate solutions of a sample's lower level that differ by much are not those of it all.
    is_degenerate = is_refresh & (c.failures > 0) & ~is_last & ~(norm(h) <= STEEPER * c.size)
    is_broken = (is_resample | is_refresh) & ~is_finite
    takes = accepts | is_start | ((is_resample | is_refresh) & is_finite & ~is_degenerate)

    # The pair of the step, and the radius.
    step, turn = c.share * c.d, h - c.u
    length, size, size_before = norm(step), norm(h), c.size
    bend = c.share * (evaluation.slope - slope)
    pairs = select(
        accepts & (bend > 1e-8 * length * norm(turn)), append(c.pairs, step, turn), c.pairs
    )
    cosine = dot(divide(h, positive(size)), divide(c.u, positive(size_before)))
    is_linear = evaluation.slope <= 0.5 * slope  # the end is still steep
    growth = jnp.where(
        cosine > 0.9, jnp.where(is_linear, 4.0, 2.0), jnp.where(cosine > 0, 2.0, 1.0)
    )
    longer = jnp.maximum(growth * length, jnp.where(c.share == 1, c.radius, 0))
    radius = jnp.where(accepts, longer, c.radius)
    newton = size_before / positive(jnp.abs(evaluation.curvature))
    trusted = FIRST * c.reference / positive(evaluation.shift)
    # Where y solved the lower level from the start, g_y is rounding and says nothing of the radius;
    # but on a plateau of x, Newton's step is none to compare with.
    is_plateau = size_before * newton > PLATEAU * jnp.abs(c.value)
    is_residual = is_plateau | (trusted > RESIDUAL * eps * newton)
    is_known = (evaluation.shift > 0) & (c.reference > 0) & is_residual
    trusted = jnp.where(is_known, trusted, jnp.inf)
    radius = jnp.where(is_probe, jnp.minimum(newton, trusted), radius)

    # A refused step is shortened; after some, there are more rows or a higher accuracy.
    excess = rise - slope * c.share
    has_minimum = jnp.isfinite(excess) & (excess > 0)
    minimum = -slope * c.share**2 / (2 * jnp.where(has_minimum, excess, 1))
    shorter = jnp.clip(jnp.where(has_minimum, minimum, 0), 0.1 * c.share, 0.5 * c.share)
    trials = jnp.where(refuses, c.trials + 1, 0)
    is_first = (c.accepted == 0) & (c.failures == 0)  # the start was evaluated with low accuracy
    fails = refuses & ((trials >= TRIALS) | is_first)
    refreshes = (is_broken & is_last) | (fails & (is_last | (c.failures < REPEATS)))
    failures = jnp.where(accepts, 0, c.failures + refreshes)
    is_confirmed = is_refresh & (norm(turn) < 0.2 * size)  # accurate: the pairs were wrong
    pairs = select(is_confirmed, no_pairs(PAIRS, x), pairs)
    radius = jnp.where(is_confirmed, length, radius)

    # More rows.
    noise = jnp.where(is_resample, 0.5**0.5 * norm(turn), c.noise)
    steps_here = jnp.where(is_resample, 0, c.steps_here + accepts)
    is_noisy = (c.noise < 0) | (size < c.noise) | (steps_here >= STEPS_PER_SAMPLE)
    is_settled = accepts & (steps_here >= 2) & is_noisy
    begins = is_start | (is_resample & (c.radius == 0))  # before the first direction
    is_unclear = begins & ((noise < 0) | (noise > CLEAR * size))
    grows = is_settled | (fails & ~refreshes) | is_degenerate | is_broken | is_unclear
    grows &= ~is_last
    rows = jnp.where(grows, jnp.minimum(2 * c.rows, most_rows), c.rows)

    u, new_size = jnp.where(takes, h, c.u), jnp.where(takes, size, c.size)
    first_size = jnp.where(is_start, size, c.first_size)
    new_value = jnp.where(takes, value, c.value)
    decrease = jnp.where(accepts, -rise, 0)
    is_new = is_resample & (jnp.abs(rise) > c.total)  # the smaller sample says nothing
    total = jnp.where(is_new, 0, c.total + decrease)
    largest_size = jnp.where(takes, jnp.maximum(c.largest_size, size), c.largest_size)
    largest_size = jnp.where(is_new, size, largest_size)

    # The next direction.
    scale = jnp.where(takes, jnp.maximum(jnp.abs(h), FORGET * c.scale), c.scale)
    largest = jnp.max(scale, initial=0)
    diagonal = jnp.maximum(divide(scale, jnp.where(largest > 0, largest, 1)), SMALLEST)
    diagonal = jnp.where(largest > 0, diagonal, 1)
    direction = -apply_inverse(pairs, u, diagonal)
    is_downhill = dot(direction, u) < 0
    pairs = select(is_downhill, pairs, no_pairs(PAIRS, x))
    direction = jnp.where(is_downhill, direction, -u)
    has_pairs = jnp.any(pairs.images[-1] != 0)

    # The end: the next step gains little; the last one gained little too, or far more than it.
    gain, little = -dot(direction, u) / 2, tolerance * total
    is_flat = is_rounding & (decrease <= little)
    flat_steps = jnp.where(accepts, jnp.where(is_flat, c.flat_steps + 1, 0), c.flat_steps)
    is_small = (gain <= little) & ((decrease <= little) | (gain <= 0.1 * decrease))
    is_small &= size <= jnp.sqrt(tolerance) * largest_size
    converges = takes & is_last & ((accepts & has_pairs & is_small) | (size == 0))
    is_stuck = (failures > FAILURES) | (flat_steps > FLAT_STEPS)
    reason = jnp.where(converges, CONVERGED, jnp.where(is_stuck, STUCK, RUNNING))
    reason = jnp.where(c.phase == DONE, c.reason, reason)

    is_concave = accepts & (bend <= 0)  # then the pairs say nothing of the length
    fills = ~has_pairs | is_concave | (norm(direction) > radius)
    factor = jnp.where(~begins & fills, radius / positive(norm(direction)), 1)
    turns = takes | is_probe
    d = jnp.where(turns, factor * direction, c.d)
    share = jnp.where(turns, 1, jnp.where(refuses, shorter, c.share))

    correction = jnp.where(takes, evaluation.correction, c.correction)
    is_rough = is_probe & (correction > 0.5 * jnp.abs(dot(u, d)))
    phase = jnp.select(
        [reason != RUNNING, grows, refreshes | is_rough, begins],
        [DONE, RESAMPLE, REFRESH, PROBE],
        TRIAL,
    )
    after = Control(
        phase=phase.astype(c.phase.dtype),
        rows=rows,
        rows_before=jnp.where(grows, c.rows, c.rows_before),
        u=u,
        size=new_size,
        relative_size=divide(new_size, positive(first_size)),
        value=new_value,
        d=d,
        correction=correction,
        share=share,
        radius=radius,
        pairs=pairs,
        scale=scale,
        reference=jnp.where(is_start, evaluation.first_gradient, c.reference),
        noise=noise,
        steps_here=steps_here,
        trials=trials,
        flat_steps=flat_steps,
        failures=failures,
        refinement=jnp.minimum(c.refinement + refreshes, MOST_REFINEMENTS),
        accepted=c.accepted + accepts,
        refused=c.refused + refuses,
        total=total,
        first_size=first_size,
        largest_size=largest_size,
        reason=reason,
        has_negative_curvature=c.has_negative_curvature
        | (is_last & (evaluation.has_negative_curvature > 0)),
        cross_size=jnp.where(takes, evaluation.cross_size, c.cross_size),
    )
    after = jax.tree.map(lambda new, old: new.astype(old.dtype), after, c)
    return after, jnp.where(accepts, x + step, x), takes, is_finite & ~is_degenerate
