"""Matrix-free linear solvers for H z = b, and eigenvalue estimates, from products H w."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

from . import pytrees
from .pytrees import Tree

Product = Callable[[Tree], Tree]  # w -> H w
LANCZOS_STEPS = 40  # maximum number of steps
GMRES_RESTARTS = 50
SCALE_PROBES, WIDE = 2, 16.0  # vectors of signs, and the spread of norms in powers of two


class Tridiagonal(NamedTuple):
    """A symmetric tridiagonal matrix."""

    diagonal: Any
    off_diagonal: Any  # same length: the last entry belongs to the next step


class ExtremeEigenvalues(NamedTuple):
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
) -> tuple[Tree, jax.Array, jax.Array]:
    """Run `conjugate_gradient`; return also the smallest relative curvature of its directions,

        w^T H w / sum_j d_j w_j^2,    d_j = sqrt(sum (H w)_j^2 / sum w_j^2) over all directions.

    It is free of the units of each coordinate, and reaches 0 if H is singular and b is not in its
    range. Without a direction it is infinite.
    """
    factor = pytrees.power_of_two(b)
    b = pytrees.scale(factor, b)
    squared = pytrees.dot(b, b)

    def unfinished(carry: Any) -> jax.Array:
        _, _, _, rr, k, is_positive, *_ = carry
        return (k < steps) & is_positive & (rr > tolerance**2 * squared)

    def iterate(carry: Any) -> Any:
        z, r, w, rr, k, _, smallest, squares = carry
        hw = product(w)
        curvature = pytrees.dot(w, hw)
        is_positive = curvature > 0
        alpha = jnp.where(is_positive, rr / jnp.where(is_positive, curvature, 1), 0)
        z, r = pytrees.axpy(alpha, w, z), pytrees.axpy(-alpha, hw, r)
        new = pytrees.dot(r, r)
        add = lambda v, total: pytrees.axpy(
            1 / pytrees.dot(w, w), jax.tree.map(jnp.square, v), total
        )
        squares = add(w, squares[0]), add(hw, squares[1])
        relative = curvature / _scaled_square(squares[0], squares[1], w)
        smallest = jnp.minimum(smallest, jnp.where(is_positive, relative, 0))
        return z, r, pytrees.axpy(new / rr, w, r), new, k + 1, is_positive, smallest, squares

    zero, first, smallest = pytrees.mapped_with(
        (pytrees.zeros(b), jnp.int32(0), jnp.full_like(squared, jnp.inf)), squared
    )
    start = (zero, b, b, squared, first, squared > 0, smallest, (zero, zero))
    z, _, _, _, k, _, smallest, _ = jax.lax.while_loop(unfinished, iterate, start)
    return pytrees.scale(1 / factor, z), k, smallest


def _scaled_square(w_squares: Tree, hw_squares: Tree, w: Tree) -> jax.Array:
    """Return sum_j d_j w_j^2, with d_j at least the squared precision of the largest."""
    ratio = lambda hw, w: jnp.sqrt(hw / jnp.where(w > 0, w, 1))
    scales = jax.tree.map(ratio, hw_squares, w_squares)
    largest = jnp.max(jnp.stack([jnp.max(d, initial=0) for d in jax.tree.leaves(scales)]))
    floor = jnp.finfo(largest.dtype).eps ** 2 * largest
    return pytrees.dot(jax.tree.map(lambda d, w: jnp.maximum(d, floor) * w, scales, w), w)


def row_scales(product: Product, like: Tree) -> Tree:
    """Return powers of two d_j for which the rows of d_i H_ij d_j have similar norms.

    All are 1 unless the norms of the rows differ by more than WIDE. The norms are estimated from
    the products with SCALE_PROBES vectors of signs.
    """
    flat, unravel = ravel_pytree(like)
    phases = jnp.arange(1, SCALE_PROBES + 1, dtype=flat.dtype)[:, None]
    signs = jnp.where(jnp.cos(phases * (1.7 * jnp.arange(flat.size) + 0.3)) < 0, -1, 1)
    multiply = lambda v: ravel_pytree(product(unravel(v)))[0]
    norms = jnp.max(jnp.abs(jax.vmap(multiply)(signs.astype(flat.dtype))), axis=0)
    exponents = jnp.where(norms > 0, jnp.log2(norms), -jnp.inf)
    largest = jnp.max(exponents, initial=-jnp.inf)
    smallest = jnp.min(jnp.where(norms > 0, exponents, jnp.inf), initial=jnp.inf)
    is_scaled = (norms > 0) & (largest - smallest > WIDE)
    relative = jnp.where(is_scaled, smallest - exponents, 0)
    return unravel(jnp.exp2(jnp.round(relative / 2)).astype(flat.dtype))


def scaled_product(product: Product, scales: Tree) -> Product:
    """Return the product with D H D for a diagonal matrix D."""
    return lambda v: pytrees.multiply(scales, product(pytrees.multiply(scales, v)))


def scaled_solve(
    product: Product, b: Tree, scales: Tree, steps: int, tolerance: Any = 0.0
) -> tuple[Tree, jax.Array, jax.Array]:
    """Run `curvature_aware_solve` in coordinates divided by `scales` (`row_scales`)."""
    scaled, right_side = scaled_product(product, scales), pytrees.multiply(scales, b)
    z, iterations, curvature = curvature_aware_solve(scaled, right_side, steps, tolerance)
    return pytrees.multiply(scales, z), iterations, curvature


def dense_solve(product: Product, b: Tree) -> Tree:
    """Return H^-1 b with H formed column by column, for small systems."""
    matrix, flat, unravel = _dense_system(product, b)
    return unravel(jnp.linalg.solve((matrix + matrix.T) / 2, flat))


def unsymmetric_solve(product: Product, b: Tree, tolerance: float, dense_size: int) -> Tree:
    """Return J^-1 b for a matrix that need not be symmetric.

    J is formed for up to `dense_size` unknowns; for more, GMRES is used.
    """
    if sum(leaf.size for leaf in jax.tree.leaves(b)) > dense_size:
        gmres = jax.scipy.sparse.linalg.gmres
        return gmres(product, b, tol=tolerance, maxiter=GMRES_RESTARTS)[0]
    matrix, flat, unravel = _dense_system(product, b)
    return unravel(jnp.linalg.solve(matrix, flat))


def _dense_system(product: Product, b: Tree) -> tuple[jax.Array, jax.Array, Any]:
    """Return the matrix of `product`, b as a vector, and the function from vectors to trees."""
    flat, unravel = ravel_pytree(b)
    column = lambda e: ravel_pytree(product(unravel(e)))[0]
    return jax.vmap(column, out_axes=1)(jnp.eye(flat.size, dtype=flat.dtype)), flat, unravel


def relative_residual(product: Product, z: Tree, b: Tree) -> jax.Array:
    """Return ||H z - b|| / ||b||, and 0 if both are 0."""
    residual, size = pytrees.norm(pytrees.sub(product(z), b)), pytrees.norm(b)
    return residual / jnp.where((size == 0) & (residual == 0), 1, size)


def power_iteration(product: Product, start: Tree, steps: int) -> jax.Array:
    """Estimate the largest |eigenvalue| of H, from below."""

    def iterate(_: Any, carry: Any) -> Any:
        w, _ = carry
        hw = product(w)
        size = pytrees.norm(hw)
        return pytrees.scale(1 / jnp.maximum(size, jnp.finfo(size.dtype).tiny), hw), size

    unit = pytrees.scale(1 / pytrees.norm(start), start)
    return jax.lax.fori_loop(0, steps, iterate, (unit, pytrees.norm(unit)))[1]


def tridiagonal(product: Product, start: Tree, steps: int) -> Tridiagonal:
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
        residual = jnp.linalg.norm(w)
        residual = jnp.where(residual > 10 * jnp.finfo(w.dtype).eps * size, residual, 0)
        q = jnp.where(residual > 0, w / jnp.where(residual > 0, residual, 1), 0)
        return (basis, q), (diagonal, residual)

    first = flat / jnp.linalg.norm(flat)
    basis = pytrees.mapped_with(jnp.zeros((steps, flat.size), flat.dtype), first[0])
    return Tridiagonal(*jax.lax.scan(step, (basis, first), jnp.arange(steps))[1])


def lanczos(product: Product, start: Tree, steps: int = LANCZOS_STEPS) -> ExtremeEigenvalues:
    """Estimate the extreme eigenvalues of a symmetric matrix from `steps` products.

    After a zero off-diagonal entry, the diagonal repeats its first entry, which lies between the
    ends and changes neither.
    """
    diagonal, off_diagonal = tridiagonal(product, start, steps)
    is_in_krylov_space = (
        jnp.cumprod(jnp.r_[jnp.ones(1, off_diagonal.dtype), jnp.sign(off_diagonal[:-1])]) > 0
    )
    off_diagonals = jnp.diag(off_diagonal[:-1], 1)
    matrix = (
        jnp.diag(jnp.where(is_in_krylov_space, diagonal, diagonal[0]))
        + off_diagonals
        + off_diagonals.T
    )
    values, vectors = jnp.linalg.eigh(matrix)
    last_components = jnp.where(is_in_krylov_space[-1], off_diagonal[-1], 0) * abs(vectors[-1])
    return ExtremeEigenvalues(
        values[0], values[-1], jnp.maximum(last_components[0], last_components[-1])
    )
