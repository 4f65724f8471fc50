"""Matrix-free linear solvers for H z = b, and eigenvalue estimates, from products H w."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

from . import pytrees
from .pytrees import Tree

Product = Callable[[Tree], Tree]  # w -> H w
LANCZOS = 40  # maximum number of steps


class Tridiagonal(NamedTuple):
    """A symmetric tridiagonal matrix."""

    diagonal: Any
    beside: Any  # same length: the last entry belongs to the next step


class Curvatures(NamedTuple):
    """Smallest and largest w^T H w / w^T w over the directions w of a solver."""

    least: jax.Array
    largest: jax.Array


class Ends(NamedTuple):
    """Estimated ends of a spectrum, each within `error` of an eigenvalue, never outside."""

    smallest: jax.Array
    largest: jax.Array
    error: jax.Array


def conjugate_gradient(
    product: Product, b: Tree, steps: int, tolerance: Any = 0.0
) -> tuple[Tree, jax.Array]:
    """Approximate H^-1 b from zero; return also the number of iterations.

    Stops after `steps`, at a residual of `tolerance` ||b||, or if the curvature w^T H w is not
    positive: then H is not the Hessian of a strongly convex function, and the last iterate is
    returned. b is scaled to size 1 by a power of two, which is exact: squares of small residuals
    would underflow in float32.
    """
    return curvature_aware_solve(product, b, steps, tolerance)[:2]


def curvature_aware_solve(
    product: Product, b: Tree, steps: int, tolerance: Any = 0.0
) -> tuple[Tree, jax.Array, Curvatures]:
    """Run `conjugate_gradient`; return also the curvatures of its directions.

    The curvatures lie between the ends of the spectrum, and reach 0 if H is singular and b is not
    in its range. Without a direction they are infinite and 0.
    """
    by = pytrees.power_of_two(b)
    b = pytrees.scale(by, b)
    squared = pytrees.dot(b, b)

    def unfinished(carry: Any) -> jax.Array:
        _, _, _, rr, k, sound, _ = carry
        return (k < steps) & sound & (rr > tolerance**2 * squared)

    def iterate(carry: Any) -> Any:
        z, r, w, rr, k, _, seen = carry
        hw = product(w)
        curvature = pytrees.dot(w, hw)
        sound = curvature > 0
        alpha = jnp.where(sound, rr / jnp.where(sound, curvature, 1), 0)
        z, r = pytrees.axpy(alpha, w, z), pytrees.axpy(-alpha, hw, r)
        new, bent = pytrees.dot(r, r), curvature / pytrees.dot(w, w)
        seen = Curvatures(jnp.minimum(seen.least, bent), jnp.maximum(seen.largest, jnp.abs(bent)))
        return z, r, pytrees.axpy(new / rr, w, r), new, k + 1, sound, seen

    none = Curvatures(jnp.full_like(squared, jnp.inf), jnp.zeros_like(squared))
    zero, first, none = pytrees.mapped_with((pytrees.zeros(b), jnp.int32(0), none), squared)
    start = (zero, b, b, squared, first, squared > 0, none)
    z, _, _, _, k, _, seen = jax.lax.while_loop(unfinished, iterate, start)
    return pytrees.scale(1 / by, z), k, seen


def dense(product: Product, b: Tree) -> Tree:
    """Return H^-1 b with H formed column by column, for small systems."""
    flat, unravel = ravel_pytree(b)
    column = lambda e: ravel_pytree(product(unravel(e)))[0]
    matrix = jax.vmap(column)(jnp.eye(flat.size, dtype=flat.dtype))
    return unravel(jnp.linalg.solve((matrix + matrix.T) / 2, flat))


def power_iteration(product: Product, start: Tree, steps: int) -> jax.Array:
    """Estimate the largest |eigenvalue| of H, from below."""

    def iterate(_: Any, carry: Any) -> Any:
        w, _ = carry
        hw = product(w)
        size = pytrees.norm(hw)
        return pytrees.scale(1 / jnp.maximum(size, jnp.finfo(size.dtype).tiny), hw), size

    unit = pytrees.scale(1 / pytrees.norm(start), start)
    return jax.lax.fori_loop(0, steps, iterate, (unit, pytrees.norm(unit)))[1]


def lanczos(product: Product, start: Tree, steps: int = LANCZOS) -> Ends:
    """Estimate the extreme eigenvalues of a symmetric matrix from `steps` products."""
    return ends(tridiagonal(product, start, steps))


def tridiagonal(product: Product, start: Tree, steps: int = LANCZOS) -> Tridiagonal:
    """Run `steps` of Lanczos' method on a symmetric matrix, with full reorthogonalisation.

    If the Krylov space ends early, the off-diagonal entry is 0.
    """
    flat, unravel = ravel_pytree(start)
    steps = min(steps, flat.size)

    def step(carry: Any, j: Any) -> Any:
        basis, q = carry
        basis = basis.at[j].set(q)
        w = ravel_pytree(product(unravel(q)))[0]
        diagonal, size = w @ q, jnp.linalg.norm(w)
        for _ in range(2):  # reorthogonalising twice is enough
            w = w - basis.T @ (basis @ w)
        beyond = jnp.linalg.norm(w)
        beyond = jnp.where(beyond > 10 * jnp.finfo(w.dtype).eps * size, beyond, 0)
        q = jnp.where(beyond > 0, w / jnp.where(beyond > 0, beyond, 1), 0)
        return (basis, q), (diagonal, beyond)

    first = flat / jnp.linalg.norm(flat)
    basis = pytrees.mapped_with(jnp.zeros((steps, flat.size), flat.dtype), first[0])
    return Tridiagonal(*jax.lax.scan(step, (basis, first), jnp.arange(steps))[1])


def ends(of: Tridiagonal, numpy: Any = jnp) -> Ends:
    """Return the extreme eigenvalues of the matrix, with JAX or NumPy.

    After a zero off-diagonal entry, the diagonal repeats its first entry, which lies between the
    ends and changes neither.
    """
    diagonal, beside = of
    alive = numpy.cumprod(numpy.r_[numpy.ones(1, beside.dtype), numpy.sign(beside[:-1])]) > 0
    between = numpy.diag(beside[:-1], 1)
    matrix = numpy.diag(numpy.where(alive, diagonal, diagonal[0])) + between + between.T
    values, vectors = numpy.linalg.eigh(matrix)
    last = numpy.where(alive[-1], beside[-1], 0) * abs(vectors[-1])
    return Ends(values[0], values[-1], numpy.maximum(last[0], last[-1]))
