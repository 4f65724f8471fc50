"""Regularizers and constraints of x without a gradient, given by their proximal operators.

    prox(v, a) = argmin_x  h(x) + ||x - v||^2 / (2 a)

`value` is h. A constraint has h = 0 where the constraint holds, and its prox is the projection for
every a. `Problem(prox=...)` adds h to the upper loss.
"""

import jax
import jax.numpy as jnp

from ..core import pytrees
from ..core.pytrees import Number, Tree


@pytrees.pytree
class Box:
    """The constraint low <= x <= high, elementwise."""

    low: Number
    high: Number

    def __call__(self, v: Tree, a: Number) -> Tree:
        return jax.tree.map(lambda v: jnp.clip(v, self.low, self.high).astype(v.dtype), v)

    def value(self, x: Tree) -> jax.Array:
        return jnp.zeros(())


@pytrees.pytree
class Ball:
    """The constraint ||x|| <= radius, with the norm over all leaves."""

    radius: Number

    def __call__(self, v: Tree, a: Number) -> Tree:
        size = pytrees.norm(v)
        tiny = jnp.finfo(size.dtype).tiny
        return pytrees.scale(jnp.minimum(1.0, self.radius / jnp.maximum(size, tiny)), v)

    def value(self, x: Tree) -> jax.Array:
        return jnp.zeros(())


@pytrees.pytree
class Simplex:
    """The constraint x >= 0 with sum `total` over the last axis of each leaf."""

    total: Number

    def __call__(self, v: Tree, a: Number) -> Tree:
        return jax.tree.map(self._project, v)

    def _project(self, v: jax.Array) -> jax.Array:
        down = -jnp.sort(-v, axis=-1)
        over = jnp.cumsum(down, axis=-1) - self.total
        count = jnp.arange(1, v.shape[-1] + 1, dtype=v.dtype)
        active = jnp.sum(down - over / count > 0, axis=-1, keepdims=True)
        shift = jnp.take_along_axis(over, active - 1, axis=-1) / active
        return jnp.maximum(v - shift, 0).astype(v.dtype)

    def value(self, x: Tree) -> jax.Array:
        return jnp.zeros(())


@pytrees.pytree
class L1:
    """The regularizer h = weight sum |x|, whose prox is soft thresholding."""

    weight: Number

    def __call__(self, v: Tree, a: Number) -> Tree:
        soft = lambda v: jnp.sign(v) * jnp.maximum(jnp.abs(v) - a * self.weight, 0)
        return jax.tree.map(lambda v: soft(v).astype(v.dtype), v)

    def value(self, x: Tree) -> jax.Array:
        return self.weight * sum(jnp.sum(jnp.abs(leaf)) for leaf in jax.tree.leaves(x))


@pytrees.pytree
class L2:
    """The regularizer h = weight ||x|| (not squared), whose prox shortens x or sets x to 0."""

    weight: Number

    def __call__(self, v: Tree, a: Number) -> Tree:
        size = pytrees.norm(v)
        tiny = jnp.finfo(size.dtype).tiny
        return pytrees.scale(jnp.maximum(0.0, 1 - a * self.weight / jnp.maximum(size, tiny)), v)

    def value(self, x: Tree) -> jax.Array:
        return self.weight * pytrees.norm(x)


def box(low: Number, high: Number) -> Box:
    """Constrain every entry of x to the interval from `low` to `high`."""
    if not low <= high:
        raise ValueError(f"a box from {low} to {high} is empty; give low <= high")
    return Box(float(low), float(high))


def ball(radius: Number) -> Ball:
    """Constrain the norm of x, over all leaves, to at most `radius`."""
    return Ball(_positive("radius", radius))


def simplex(total: Number = 1.0) -> Simplex:
    """Constrain x to nonnegative weights that sum to `total` along the last axis."""
    return Simplex(_positive("total", total))


def l1(weight: Number) -> L1:
    """Regularize by weight sum |x|, which sets many entries of x to exactly 0."""
    return L1(_positive("weight", weight))


def l2(weight: Number) -> L2:
    """Regularize by weight ||x||, which can set all of x to exactly 0."""
    return L2(_positive("weight", weight))


def _positive(name: str, value: Number) -> float:
    if not value > 0:
        raise ValueError(f"{name} = {value} must be positive")
    return float(value)
