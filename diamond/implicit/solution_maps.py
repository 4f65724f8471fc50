"""Minimizers, roots and fixed points as functions that JAX can differentiate.

Derivatives follow from the implicit function theorem (`jax.lax.custom_root`), not from the solver:
r(x, y*(x)) = 0 gives  r_y dy* = -r_x dx.
"""

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

from ..core import linear_solvers, newton, pytrees
from ..core.linear_solvers import Product
from ..core.newton import CG_STEPS, NEWTON_STEPS, Residual
from ..core.pytrees import Tree
from ..core.validation import as_int
from .argument_checks import check_like_guess, check_scalar, check_tolerance, float_tree
from .minimizers import Find, Loss, Solver, choose_minimizer

# Unknowns of a linear system that is formed; that of a contraction is well-conditioned.
DENSE_ROOT, DENSE_FIXED_POINT = 256, 32
ITERATIONS = 1000  # maximum number of applications of a map

Solve = Callable[[Product, Tree], Tree]  # (J, b) -> J^-1 b


def argmin(
    lower: Callable[[Tree, Tree], jax.Array],
    x: Tree,
    y0: Tree,
    *,
    solver: Solver = "newton",
    tolerance: float | None = None,
    steps: int = NEWTON_STEPS,
    with_error: bool = False,
) -> Tree:
    """Return y*(x) = argmin_y lower(x, y), differentiable in x and in what `lower` closes over.

    Derivatives in forward and reverse mode, of any order, solve g_yy z = b by conjugate gradients;
    y0 has the derivative 0. `lower` must be twice differentiable, and strongly convex in y near
    y*(x). Call it under `jax.jit`: without, every call compiles again.

    If the solver does not reach `tolerance`, y is NaN; a derivative is NaN if the relative residual
    of the linear system exceeds the square root of `tolerance`.

    Args:
        lower: (x, y) -> scalar.
        x: parameters, a pytree.
        y0: first guess of y, a pytree of floating-point numbers.
        solver: "newton": Newton's method with conjugate gradients and step halving;
            "conjugate_gradient": for `lower` quadratic in y; "lbfgs": L-BFGS of optax, then Newton;
            or a function (loss, y0) -> y with loss(y) = lower(x, y), then Newton.
        tolerance: largest error that counts as solved: the last Newton step relative to 1 + ||y||,
            about the distance to y*(x); default precision^(2/3), 2e-5 in float32.
        steps: maximum number of Newton steps.
        with_error: return (y, error), with y as it is if the error exceeds `tolerance`.

    Returns:
        y*(x), like y0.

    Raises:
        ValueError: an argument does not fit.
        ImportError: solver is "lbfgs", and optax is not installed.
    """
    y0 = float_tree("y0", y0)
    tolerance = check_tolerance(tolerance, y0)
    loss: Loss = partial(lower, x)
    check_scalar("lower(x, y)", loss, y0)
    minimize = choose_minimizer(solver, loss, tolerance, as_int("steps", steps, 1))

    def solve(product: Product, b: Tree) -> Tree:
        scales = linear_solvers.row_scales(product, b)
        return linear_solvers.scaled_solve(product, b, scales, CG_STEPS, tolerance)[0]

    return _differentiable(
        jax.grad(loss), y0, minimize, solve, tolerance, with_error, symmetric=True
    )


def root(
    equation: Callable[[Tree, Tree], Tree],
    x: Tree,
    y0: Tree,
    *,
    tolerance: float | None = None,
    steps: int = NEWTON_STEPS,
    with_error: bool = False,
) -> Tree:
    """Return y*(x) with equation(x, y*(x)) = 0, differentiable like `argmin`.

    Newton's method with step halving. Its linear systems, and those of derivatives, are formed for
    up to 256 unknowns, and solved by GMRES for more.

    Args:
        equation: (x, y) -> residual, like y.
        x: parameters, a pytree.
        y0: first guess of y.
        tolerance: largest error that counts as solved, as in `argmin`; otherwise y is NaN.
        steps: maximum number of Newton steps.
        with_error: return (y, error), with y as it is if the error exceeds `tolerance`.

    Returns:
        y*(x), like y0.

    Raises:
        ValueError: an argument does not fit.
    """
    y0 = float_tree("y0", y0)
    tolerance = check_tolerance(tolerance, y0)
    residual: Residual = partial(equation, x)
    check_like_guess("equation(x, y)", residual, y0)
    solve = partial(linear_solvers.unsymmetric_solve, tolerance=tolerance, dense_size=DENSE_ROOT)
    steps = as_int("steps", steps, 1)

    def find(y0: Tree) -> tuple[Tree, jax.Array]:
        counted = lambda product, b: (solve(product, b), jnp.int32(1))
        found = newton.solve_equation(residual, y0, counted, tolerance, steps)
        return found.y, found.error

    return _differentiable(residual, y0, find, solve, tolerance, with_error)


def fixed_point(
    map: Callable[[Tree, Tree], Tree],
    x: Tree,
    y0: Tree,
    *,
    tolerance: float | None = None,
    steps: int = ITERATIONS,
    with_error: bool = False,
) -> Tree:
    """Return y*(x) = map(x, y*(x)) by iteration, differentiable like `root`.

    Linear systems of derivatives of more than 32 unknowns are solved by GMRES.

    Args:
        map: (x, y) -> next y, a contraction in y. For other maps, use `root` with
            y - map(x, y).
        x: parameters, a pytree.
        y0: first guess of y.
        tolerance: largest ||map(x, y) - y|| / (1 + ||y||) that counts as solved; otherwise y is
            NaN.
        steps: maximum number of applications of the map.
        with_error: return (y, error), with y as it is if the error exceeds `tolerance`.

    Returns:
        y*(x), like y0.

    Raises:
        ValueError: an argument does not fit.
    """
    y0 = float_tree("y0", y0)
    tolerance = check_tolerance(tolerance, y0)
    next_point: Residual = partial(map, x)
    check_like_guess("map(x, y)", next_point, y0)
    steps = as_int("steps", steps, 1)
    residual: Residual = lambda y: pytrees.sub(y, next_point(y))

    def find(y0: Tree) -> tuple[Tree, jax.Array]:
        def iterate(
            carry: tuple[Tree, jax.Array, jax.Array],
        ) -> tuple[Tree, jax.Array, jax.Array]:
            y, _, k = carry
            move = residual(y)
            return pytrees.sub(y, move), pytrees.norm(move) / (1 + pytrees.norm(y)), k + 1

        unfinished = lambda carry: (carry[1] > tolerance) & (carry[2] < steps)
        error = jnp.full_like(pytrees.norm(y0), jnp.inf)
        return jax.lax.while_loop(unfinished, iterate, (y0, error, jnp.int32(0)))[:2]

    solve = partial(
        linear_solvers.unsymmetric_solve, tolerance=tolerance, dense_size=DENSE_FIXED_POINT
    )
    return _differentiable(residual, y0, find, solve, tolerance, with_error)


def _differentiable(
    residual: Residual,
    y0: Tree,
    find: Find,
    solve: Solve,
    tolerance: float,
    with_error: bool,
    symmetric: bool = False,
) -> Tree:
    """Return the root that `find` computes, with derivatives whose systems `solve` solves."""

    # One vector, because JAX cannot transpose a solve with b known in some leaves only.
    start, unravel = ravel_pytree(y0)
    flat_residual = lambda v: ravel_pytree(residual(unravel(v)))[0]

    def find_or_nan(_: Residual, start: jax.Array) -> tuple[jax.Array, jax.Array]:
        y, error = find(unravel(start))
        y = ravel_pytree(y)[0]
        return y if with_error else _keep_if(error <= tolerance, y), error

    def checked(product: Product, b: jax.Array) -> jax.Array:
        z = solve(product, b)
        return _keep_if(linear_solvers.relative_residual(product, z, b) <= tolerance**0.5, z)

    def solve_tangent(product: Product, b: jax.Array) -> Tree:
        return jax.lax.custom_linear_solve(
            product, b, checked, transpose_solve=checked, symmetric=symmetric
        )

    y, error = jax.lax.custom_root(flat_residual, start, find_or_nan, solve_tangent, has_aux=True)
    return (unravel(y), error) if with_error else unravel(y)


def _keep_if(is_solved: jax.Array, y: jax.Array) -> jax.Array:
    """Return y if it is a solution, else NaN."""
    return jnp.where(is_solved, y, jnp.nan)
