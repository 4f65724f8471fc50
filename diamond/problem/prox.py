"""Regularizers and constraints of x that have no gradient, by their prox.

    prox(v, a) = argmin_x  h(x) + ||x - v||^2 / (2 a)

h is `value`; a constraint has h = 0 where it holds, and its prox is the projection, whatever a.
`Problem(prox=...)` adds h to the upper loss.
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp

from ..core import tree
from ..core.tree import Number, Tree


@tree.pytree
@dataclass(frozen=True)
class Box:
    """low <= x <= high, number by number."""

    low: Number
    high: Number

    def __call__(self, v: Tree, a: Number) -> Tree:
        return jax.tree.map(lambda v: jnp.clip(v, self.low, self.high).astype(v.dtype), v)

    def value(self, x: Tree) -> jax.Array:
        return jnp.zeros(())


@tree.pytree
@dataclass(frozen=True)
class Ball:
    """||x|| <= radius, over all leaves."""

    radius: Number

    def __call__(self, v: Tree, a: Number) -> Tree:
        size = tree.norm(v)
        tiny = jnp.finfo(size.dtype).tiny
        return tree.scale(jnp.minimum(1.0, self.radius / jnp.maximum(size, tiny)), v)

    def value(self, x: Tree) -> jax.Array:
        return jnp.zeros(())


@tree.pytree
@dataclass(frozen=True)
class Simplex:
    """x >= 0 with the sum `total`, over the last axis of each leaf."""

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


@tree.pytree
@dataclass(frozen=True)
class L1:
    """h = weight sum |x|: soft thresholds."""

    weight: Number

    def __call__(self, v: Tree, a: Number) -> Tree:
        soft = lambda v: jnp.sign(v) * jnp.maximum(jnp.abs(v) - a * self.weight, 0)
        return jax.tree.map(lambda v: soft(v).astype(v.dtype), v)

    def value(self, x: Tree) -> jax.Array:
        return self.weight * sum(jnp.sum(jnp.abs(leaf)) for leaf in jax.tree.leaves(x))


@tree.pytree
@dataclass(frozen=True)
class L2:
    """h = weight ||x||, not squared: all of x is shortened, and 0 if it is short."""

    weight: Number

    def __call__(self, v: Tree, a: Number) -> Tree:
        size = tree.norm(v)
        tiny = jnp.finfo(size.dtype).tiny
        return tree.scale(jnp.maximum(0.0, 1 - a * self.weight / jnp.maximum(size, tiny)), v)

    def value(self, x: Tree) -> jax.Array:
        return self.weight * tree.norm(x)


def box(low: Number, high: Number) -> Box:
    """Between `low` and `high`, number by number."""
    if not low <= high:
        raise ValueError(f"a box from {low} to {high} is empty; give low <= high")
    return Box(float(low), float(high))


def ball(radius: Number) -> Ball:
    """Not longer than `radius`."""
    return Ball(_positive("radius", radius))


def simplex(total: Number = 1.0) -> Simplex:
    """Weights: not negative, with this sum along the last axis."""
    return Simplex(_positive("total", total))


def l1(weight: Number) -> L1:
    """weight sum |x|: many numbers become exactly 0."""
    return L1(_positive("weight", weight))


def l2(weight: Number) -> L2:
    """weight ||x||."""
    return L2(_positive("weight", weight))


def _positive(name: str, value: Number) -> float:
    if not value > 0:
        raise ValueError(f"{name} = {value} must be positive")
    return float(value)
