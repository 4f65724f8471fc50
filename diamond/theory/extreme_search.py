"""Search for extreme values of multilinear forms, by their gradients."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from ..core import pytrees
from ..core.pytrees import Tree

Form = Callable[..., jax.Array]  # (point, v_1, .., v_n) -> number, linear in every v_j


def unit_or_zero(a: Tree) -> Tree:
    """Return a / ||a||, or 0 for 0."""
    size = pytrees.norm(a)
    return pytrees.scale(jnp.where(size > 0, 1 / jnp.where(size > 0, size, 1), 0), a)


def supremum(
    form: Form, centre: Tree, point: Tree, vectors: tuple[Tree, ...], *, radius: Any, steps: int
) -> jax.Array:
    """Approximate max |form(p, v_1, .., v_n)| over unit v_j and p within `radius` of `centre`.

    The result is a lower bound, by a local search from `point` and `vectors`. Steps alternate: one
    sets v_j to its optimum for the others, its unit gradient (for n = 2 this is power iteration,
    for n = 3 the higher-order power method); one moves p uphill and back into the ball, by
    decreasing steps. With radius 0 the result is the norm of the form at `point`.
    """
    n = len(vectors)

    def step(k: Any, carry: Any) -> Any:
        p, vs, best = carry
        value, (uphill, *gradients) = jax.value_and_grad(form, range(n + 1))(p, *vs)
        vs = tuple(
            pytrees.select(k % (n + 1) == j, unit_or_zero(gradients[j]), vs[j]) for j in range(n)
        )
        length = jnp.where(k % (n + 1) == n, radius / 4 * (1 - k / steps) * jnp.sign(value), 0)
        off = pytrees.sub(pytrees.axpy(length, unit_or_zero(uphill), p), centre)
        size = pytrees.norm(off)
        inside = jnp.minimum(1, radius / jnp.where(size > 0, size, 1))
        return pytrees.axpy(inside, off, centre), vs, jnp.maximum(best, jnp.abs(value))

    vs = tuple(unit_or_zero(v) for v in vectors)
    start = point, vs, jnp.zeros_like(pytrees.norm(point))
    return jax.lax.fori_loop(0, steps, step, start)[2]
