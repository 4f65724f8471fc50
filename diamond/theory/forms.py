"""Derivatives that the assumptions bound, as multilinear forms of unit vectors.

An operator norm is the largest value of a form: ||g_xy|| = max w' g_xy z over unit w, z. A
Lipschitz constant is that of the next derivative, along a unit direction d of (x, y).
"""

from typing import Any, NamedTuple

import jax

from ..core import pytrees
from ..core.pytrees import Tree
from ..problem import Objectives
from .extreme_search import Form


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
