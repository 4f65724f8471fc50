"""Derivatives that the assumptions bound, as multilinear forms, and the search for their extremes.

An operator norm is the largest value of a form: ||g_xy|| = max w' g_xy z over unit w, z. A
Lipschitz constant is that of the next derivative, along a unit direction d of (x, y).
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from ..core import pytrees
from ..core.pytrees import Tree
from ..problem import Objectives

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


class Bound(NamedTuple):
    """A constant of the assumptions: the largest value of `form`."""

    form: Form  # (one agent's objectives, point, vectors) -> number
    spaces: str  # spaces of its vectors: "x", "y", or "d" for both
    counted_as: str  # field of `Cost` that counts its products


def gradient_form(space: int) -> Form:
    """Return the form <f_x, w>, or <f_y, w> for space 1."""
    return lambda problem, p, w: pytrees.dot(jax.grad(problem.f, space)(*p, None), w)


def hessian_form(space: int) -> Form:
    """Return the form w' g_xy z, or w' g_yy z for space 1."""

    def form(problem: Objectives, p: tuple[Tree, Tree], w: Tree, z: Tree) -> jax.Array:
        lower_slope = lambda *p: pytrees.dot(jax.grad(problem.g, 1)(*p, None), z)
        zero: Any = pytrees.zeros(p[1 - space])
        return jax.jvp(lower_slope, p, (w, zero) if space == 0 else (zero, w))[1]

    return form


def derivative_form(form: Form) -> Form:
    """Return the derivative of `form` along a direction d of the point."""
    return lambda problem, p, d, *vectors: jax.jvp(lambda *p: form(problem, p, *vectors), p, d)[1]


BOUNDS = {
    "C_fy": Bound(gradient_form(1), "y", "gradients"),  # ||f_y||, Assumption 1.2
    "L_fx": Bound(derivative_form(gradient_form(0)), "dx", "gradients"),  # of f_x, Assumption 1.1
    "L_fy": Bound(derivative_form(gradient_form(1)), "dy", "gradients"),  # of f_y, Assumption 1.1
    "C_gxy": Bound(hessian_form(0), "xy", "jvps"),  # ||g_xy||, Assumption 2.5
    "L_g_full": Bound(hessian_form(1), "yy", "hvps"),  # ||g_yy||, Assumption 2.2
    "L_gxy": Bound(derivative_form(hessian_form(0)), "dxy", "jvps"),  # of g_xy, Assumption 2.4
    "L_gyy": Bound(derivative_form(hessian_form(1)), "dyy", "hvps"),  # of g_yy, Assumption 2.4
}
