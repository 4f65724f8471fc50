"""Pairs of a step s and its image A s, which approximate the inverse of a symmetric matrix A.

The same memory serves L-BFGS, where A is the Hessian along the path, and conjugate gradients, where
the pairs of earlier solutions precondition the next one (Morales and Nocedal, 2000). Each pair is
divided by sqrt(s' A s), which changes nothing and keeps small units from underflowing.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

LEAST, KEEP = 1e-8, 0.5


class CurvaturePairs(NamedTuple):
    """The last pairs, newest last; rows of zeros are free."""

    steps: jax.Array  # (capacity, n)
    images: jax.Array
    step_sums: jax.Array  # (n,), of absolute values, each pair divided by the length of its step
    image_sums: jax.Array


def no_pairs(capacity: int, like: jax.Array) -> CurvaturePairs:
    """Return a memory without pairs, for vectors of the size of `like`."""
    zeros = jnp.zeros((capacity, like.size), like.dtype) + 0 * like[None]
    return CurvaturePairs(zeros, zeros, zeros[0], zeros[0])


def append(pairs: CurvaturePairs, step: jax.Array, image: jax.Array) -> CurvaturePairs:
    """Return the memory with one more pair; its curvature must be positive."""
    root = jnp.sqrt(dot(step, image))
    add = lambda rows, row: jnp.roll(rows, -1, axis=0).at[-1].set(divide(row, root))
    share = lambda v: divide(jnp.abs(v), norm(step))
    return CurvaturePairs(
        add(pairs.steps, step),
        add(pairs.images, image),
        pairs.step_sums + share(step),
        pairs.image_sums + share(image),
    )


def diagonal_of(pairs: CurvaturePairs) -> jax.Array:
    """Return an estimate of the diagonal of A, relative to its largest entry.

    sum |(A s)_j| / sum |s_j| over recent pairs is |A_jj| where the diagonal dominates. It is 1
    where the pairs say nothing: for coordinates that have not moved, or that no row depends on.
    """
    tiny = jnp.finfo(pairs.steps.dtype).tiny
    ratio = pairs.image_sums / jnp.maximum(pairs.step_sums, tiny)
    relative = divide(ratio, jnp.maximum(jnp.max(ratio, initial=0), tiny))
    return jnp.where(ratio > 0, jnp.maximum(relative, LEAST), 1)


def merge(pairs: CurvaturePairs, newer: CurvaturePairs, count: jax.Array) -> CurvaturePairs:
    """Return the newest pairs of both; only the newer ones if these are half of the capacity.

    `count` is the number of pairs that were appended to `newer`.
    """
    capacity = len(pairs.steps)
    used = jnp.minimum(count, capacity)

    def last(old: jax.Array, new: jax.Array) -> jax.Array:
        shifted = jnp.roll(old, -used, axis=0)
        is_new = (jnp.arange(capacity) >= capacity - used)[:, None]
        is_enough = 2 * count >= capacity
        return jnp.where(is_new, new, jnp.where(is_enough, 0, shifted))

    add = lambda old, new: KEEP * old + new
    return CurvaturePairs(
        last(pairs.steps, newer.steps),
        last(pairs.images, newer.images),
        add(pairs.step_sums, newer.step_sums),
        add(pairs.image_sums, newer.image_sums),
    )


def apply_inverse(
    pairs: CurvaturePairs, v: jax.Array, diagonal: jax.Array | None = None
) -> jax.Array:
    """Return the approximation of A^-1 v, by the two loops of L-BFGS.

    Without pairs, or where they say nothing, A is a multiple of the `diagonal`, by default of 1.
    """
    inverse = 1 if diagonal is None else 1 / diagonal

    def backward(v: jax.Array, pair: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        step, image = pair
        factor = dot(step, v)
        return v - factor * image, factor

    def forward(v: jax.Array, pair: tuple[jax.Array, ...]) -> tuple[jax.Array, None]:
        step, image, factor = pair
        return v + (factor - dot(image, v)) * step, None

    memory = pairs.steps, pairs.images
    v, factors = jax.lax.scan(backward, v, memory, reverse=True)
    newest = dot(pairs.images[-1], inverse * pairs.images[-1])
    v = inverse * jnp.where(newest > 0, 1 / jnp.where(newest > 0, newest, 1), 1) * v
    return jax.lax.scan(forward, v, (*memory, factors))[0]


def norm(v: jax.Array) -> jax.Array:
    """Return ||v|| without overflow or underflow of squares."""
    largest = jnp.max(jnp.abs(v), initial=0)
    scale = jnp.where(largest > 0, largest, 1)
    return scale * jnp.sqrt(jnp.sum(divide(v, scale) ** 2))


def dot(a: jax.Array, b: jax.Array) -> jax.Array:
    """Return <a, b>."""
    return jnp.sum(a * b)


def divide(v: jax.Array, number: jax.Array) -> jax.Array:
    """Return v / number in the bits of a division, for one agent and mapped over many.

    For one number XLA would take the product with 1 / number, unless it sees an array.
    """
    return v / jax.lax.optimization_barrier(jnp.broadcast_to(number, v.shape))
