"""Linear systems H z = b by products H w alone."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

from . import tree
from .tree import Tree

Product = Callable[[Tree], Tree]  # w -> H w


def conjugate_gradient(
    product: Product, b: Tree, steps: int, tolerance: float = 0.0
) -> tuple[Tree, jax.Array]:
    """About H^-1 b, from zero, and the iterations made.

    Stops after `steps`, at a residual of `tolerance` ||b||, or where the curvature w^T H w is not
    positive: there H is no Hessian of a strongly convex function, and the last iterate is kept.
    """
    squared = tree.dot(b, b)

    def unfinished(carry: Any) -> jax.Array:
        _, _, _, rr, k, sound = carry
        return (k < steps) & sound & (rr > tolerance**2 * squared)

    def iterate(carry: Any) -> Any:
        z, r, w, rr, k, _ = carry
        hw = product(w)
        curvature = tree.dot(w, hw)
        sound = curvature > 0
        alpha = jnp.where(sound, rr / jnp.where(sound, curvature, 1), 0)
        z, r = tree.axpy(alpha, w, z), tree.axpy(-alpha, hw, r)
        new = tree.dot(r, r)
        return z, r, tree.axpy(new / rr, w, r), new, k + 1, sound

    start = (tree.zeros(b), b, b, squared, jnp.int32(0), squared > 0)
    z, _, _, _, k, _ = jax.lax.while_loop(unfinished, iterate, start)
    return z, k


def dense(product: Product, b: Tree) -> Tree:
    """H^-1 b, with H formed column by column: for small systems."""
    flat, unravel = ravel_pytree(b)
    column = lambda e: ravel_pytree(product(unravel(e)))[0]
    matrix = jax.vmap(column)(jnp.eye(flat.size, dtype=flat.dtype))
    return unravel(jnp.linalg.solve((matrix + matrix.T) / 2, flat))


def power_iteration(product: Product, start: Tree, steps: int) -> jax.Array:
    """About the largest |eigenvalue| of H, from below."""

    def iterate(_: Any, carry: Any) -> Any:
        w, _ = carry
        hw = product(w)
        size = tree.norm(hw)
        return tree.scale(1 / jnp.maximum(size, jnp.finfo(size.dtype).tiny), hw), size

    unit = tree.scale(1 / tree.norm(start), start)
    return jax.lax.fori_loop(0, steps, iterate, (unit, tree.norm(unit)))[1]
