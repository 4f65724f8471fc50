"""Step size of x, learned from the gradient trackers that every round computes.

There are two phases, both free of units. While **ramping**, a step has a given length: the first
changes the lower gradient g_y by FIRST of its norm at the start, and each is up to twice as long as
the previous one, as long as successive trackers agree. The ramp ends when the trackers turn, or
when the tracker points back to the start. After that the step size is distance over gradients (DoG:
Ivgi, Hinder and Carmon, 2023),

    alpha_t = max_s ||x_s - x_0|| / sqrt(sum_s ||u_s||^2)

with a sum that begins as if RESTART rounds had had the last tracker.

**Delay.** x sees the effect of a step only after y has followed, tau rounds later. A step that
doubles in every round would have grown 2^tau times by then, so it grows by 2^(1 / tau), and steps
after the ramp are divided by 1 + DAMPING (tau - 1).

**Oscillation.** If x oscillates around its moving average, the tracker points back to that average.
Each such round makes all later steps shorter by up to SHORTENING, at most sqrt(1 + t) times in t
rounds, because noise looks the same, and at most MOST_SHORTENING times: alpha falls like 1/sqrt(t).

The scalars are sent and averaged like x, so that all agents converge to the same step.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from ..core import pytrees
from ..core.pytrees import Tree

FIRST, TRUST = 0.1, 0.5  # change of g_y by a step, relative to its norm at the start
GROWTH = 2.0  # growth of step lengths while ramping, per delay of y
AGREE, ALIGNED = 0.7, 0.95  # cosine of successive trackers: no growth below, full growth above
RESTART = 8.0  # rounds with which the sum of squares begins
CAP = 0.3  # longest step relative to the distance from the start
LONGEST_DELAY, DAMPING = 6.0, 0.3
RECENT = 0.2  # weight of the newest x in its moving average
RESTORING, SHORTENING = 0.2, 0.3  # cosine of the tracker and the displacement from that average
MOST_SHORTENING = 8.0
TINY = 1e-30


class StepScalars(NamedTuple):
    """Data of an agent about the step size, averaged with its neighbors in every round."""

    distance: jax.Array  # largest distance from the start
    gradient_sum: jax.Array  # sum of squared norms of trackers
    length: jax.Array  # length of the last step
    first_length: jax.Array
    ramping: jax.Array  # 1 or 0; in between if agents differ
    cosine: jax.Array  # averaged cosine of successive trackers
    delay: jax.Array  # tau: rounds in which y follows x
    shortening: jax.Array  # divisor of steps because of oscillation
    alpha: jax.Array  # the last step size


def initial_scalars(x: Tree) -> StepScalars:
    """Return the scalars before the first round."""
    zero = jnp.zeros((), jnp.result_type(*jax.tree.leaves(x)))
    one = zero + 1
    scalars = StepScalars(*[zero] * len(StepScalars._fields))
    return scalars._replace(ramping=one, cosine=one, delay=one, shortening=one)


class StepInputs(NamedTuple):
    """Inputs of the step rule beside the scalars."""

    x: Tree
    start: Tree
    average: Tree  # moving average of x
    tracker: Tree
    previous_tracker: Tree
    trusted_length: Any  # length that does not change g_y too much, while ramping
    t: Any
    is_first: Any  # whether x moves for the first time
    smoothing_delay: Any  # rounds by which averaged directions lag
    magnitude: Any = None  # norm of the direction of x, if it is not the tracker
    newest: Any = None  # tracker of this round, if `tracker` is a moving average
    longest_delay: float = LONGEST_DELAY
    boldness: Any = 1.0  # below 1 after a rollback: a slower ramp, and shorter steps after it


def propose_step(scalars: StepScalars, inputs: StepInputs) -> StepScalars:
    """Return the scalars after this round; `alpha` is the step size to take."""
    u, before, first = inputs.tracker, inputs.previous_tracker, inputs.is_first
    size, size_before = pytrees.norm(u), pytrees.norm(before)
    offset = pytrees.sub(inputs.x, inputs.start)
    distance_now = pytrees.norm(offset)
    distance = jnp.maximum(scalars.distance, distance_now)
    first_length = jnp.where(first, inputs.trusted_length, scalars.first_length)

    moved = size if inputs.magnitude is None else jnp.maximum(inputs.magnitude, size)
    newest = u if inputs.newest is None else inputs.newest
    successive = pytrees.dot(newest, before) / (pytrees.norm(newest) * size_before + TINY)
    downhill = -pytrees.dot(u, offset) / (size * distance_now + TINY)
    cosine = jnp.where(first, scalars.cosine, (scalars.cosine + successive) / 2)
    was_ramping = scalars.ramping > 0.5
    ramping = was_ramping & (first | ((cosine > 0) & (downhill > 0)))
    ending = was_ramping & ~ramping

    delay = jnp.clip(scalars.delay, 1.0, inputs.longest_delay) + inputs.smoothing_delay
    agreement = jnp.clip((successive - AGREE) / (ALIGNED - AGREE), 0.0, 1.0)
    growth = 1 + (GROWTH ** (inputs.boldness / delay) - 1) * agreement
    ramp_length = jnp.where(first, inputs.boldness * first_length, growth * scalars.length)
    ramp_length = jnp.minimum(ramp_length, inputs.trusted_length)

    squares = scalars.gradient_sum + moved**2
    restarted = RESTART * jnp.maximum(moved, size_before) ** 2
    gradient_sum = jnp.where(ramping, moved**2, jnp.where(ending, restarted, squares))
    length = jnp.maximum(distance, first_length) * moved / jnp.sqrt(gradient_sum + TINY)
    length = jnp.minimum(length, jnp.maximum(CAP * distance, first_length))
    swing = pytrees.sub(inputs.x, inputs.average)
    restoring = pytrees.dot(u, swing) / (size * pytrees.norm(swing) + TINY)
    strength = jnp.clip((restoring - RESTORING) / (1 - RESTORING), 0.0, 1.0)
    shortening = jnp.where(was_ramping, 1.0, scalars.shortening * (1 + SHORTENING * strength))
    shortening = jnp.minimum(shortening, jnp.minimum(jnp.sqrt(1.0 + inputs.t), MOST_SHORTENING))
    length = inputs.boldness * length / (1 + DAMPING * (delay - 1)) / shortening
    length = jnp.where(ramping, ramp_length, length)
    return StepScalars(
        distance=distance,
        gradient_sum=gradient_sum,
        length=length,
        first_length=first_length,
        ramping=ramping.astype(size.dtype),
        cosine=cosine,
        delay=scalars.delay,
        shortening=shortening,
        alpha=length / (moved + TINY),
    )
