"""The hypergradient of two plain functions in one call, with an estimate of its error."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp

from ..core import linear_solvers, newton, pytrees
from ..core.newton import CG_STEPS
from ..core.pytrees import Tree
from ..core.sampling import Sample
from ..hypergradient import Hypergradient, exact, hessian_free, neumann_sum
from ..hypergradient.conjugate import ConjugateGradient
from ..hypergradient.hessian_free import HessianFree
from ..hypergradient.implicit_estimator import ImplicitHypergradient, hessian
from ..hypergradient.neumann import TERMS
from ..hypergradient.unrolled import Unrolled
from ..problem import Objectives, Rows
from ..schedules.learned import Learned, learned_names, with_learned_values
from .argument_checks import check_scalar, check_tolerance, float_tree

Method = (
    Literal["exact", "conjugate_gradient", "neumann", "unrolled", "hessian_free"] | Hypergradient
)
ALL_ROWS = Sample(None, None, None, None, 0)


class HypergradientEstimate(NamedTuple):
    """Gradient of upper(x, y*(x)), and errors of its two parts."""

    gradient: Tree
    error: jax.Array  # of the inverse Hessian, relative
    y: Tree  # the point at which it was computed
    y_error: jax.Array  # of y, as in `argmin`; NaN if y was given as the solution


def hypergradient(
    upper: Callable[[Tree, Tree], jax.Array],
    lower: Callable[[Tree, Tree], jax.Array],
    x: Tree,
    y: Tree,
    *,
    method: Method = "conjugate_gradient",
    solve: bool = True,
    tolerance: float | None = None,
) -> HypergradientEstimate:
    """Estimate the gradient of upper(x, y*(x)) with y*(x) = argmin_y lower(x, y), and its error.

    `error` is ||g_yy z - f_y|| / ||f_y|| for methods that solve g_yy z = f_y. For "unrolled" and
    "hessian_free" it is the relative change of the gradient since half as many terms. Differentiate
    `argmin` for second derivatives.

    Args:
        upper: (x, y) -> scalar f.
        lower: (x, y) -> scalar g, strongly convex in y.
        x: parameters, a pytree.
        y: first guess of y*(x); without `solve`, the point at which f and g are differentiated.
        method: "exact": g_yy is formed; "conjugate_gradient", to `tolerance`; "neumann":
            32 terms of the series; "unrolled": through 32 gradient steps from y; "hessian_free":
            32 terms by differences of gradients; or an estimator of `diamond.hypergradient`. L is
            the largest eigenvalue of g_yy (Lanczos) where the estimator has no number.
        solve: whether y*(x) is computed first, by Newton's method from y.
        tolerance: error of y*(x) and of conjugate gradients, as in `argmin`.

    Returns:
        The gradient, its error, y and the error of y.

    Raises:
        ValueError: an argument does not fit.
    """
    x, y = float_tree("x", x), float_tree("y", y)
    tolerance = check_tolerance(tolerance, y)
    check_scalar("upper(x, y)", partial(upper, x), y)
    check_scalar("lower(x, y)", partial(lower, x), y)
    estimator = _choose_estimator(method, tolerance)
    y_error = jnp.full_like(pytrees.norm(y), jnp.nan)
    if solve:
        found = newton.minimize(lambda y: jax.grad(lower, 1)(x, y), y, tolerance)
        y, y_error = found.y, found.error
    problem = _objectives_without_rows(upper, lower)
    product = hessian(problem, (x, y), None)
    if learned_names(estimator):
        spectrum = linear_solvers.lanczos(product, pytrees.normal(jax.random.key(0), y))
        largest = spectrum.largest + spectrum.error
        estimator = with_learned_values(estimator, {"lipschitz": largest, "rate": 1 / largest})
    if isinstance(estimator, ImplicitHypergradient):
        (gradient,), (system,), _ = estimator.estimate_with_systems(problem, [(x, y)], ALL_ROWS)
        error = linear_solvers.relative_residual(product, *system)
        return HypergradientEstimate(gradient, error, y, y_error)
    (gradient,), _ = estimator(problem, [(x, y)], ALL_ROWS)
    (rough,), _ = _with_half_the_terms(estimator)(problem, [(x, y)], ALL_ROWS)
    difference = pytrees.norm(pytrees.sub(gradient, rough))
    size = pytrees.norm(gradient)
    error = difference / jnp.where((size == 0) & (difference == 0), 1, size)
    return HypergradientEstimate(gradient, error, y, y_error)


def _choose_estimator(method: Method, tolerance: float) -> Hypergradient:
    """Return the estimator that `method` names; raise ValueError if a single call cannot use it."""
    match method:
        case "exact":
            return exact()
        case "conjugate_gradient":
            return ImplicitHypergradient(ConjugateGradient(CG_STEPS, tolerance=tolerance))
        case "neumann":
            return neumann_sum()
        case "unrolled":
            return Unrolled(Learned("rate"), TERMS)
        case "hessian_free":
            return hessian_free(TERMS)
        case Hypergradient():
            if missing := learned_names(method) - {"lipschitz"}:
                raise ValueError(
                    f"the estimator needs {', '.join(sorted(missing))} of a previous round, which "
                    f"a single call does not have; use 'conjugate_gradient'"
                )
            if not isinstance(method, ImplicitHypergradient):
                _with_half_the_terms(method)  # raises
            return method
    raise ValueError(
        f"method = {method!r}; there are 'exact', 'conjugate_gradient', 'neumann', 'unrolled' and "
        f"'hessian_free', or give an estimator of diamond.hypergradient"
    )


def _with_half_the_terms(estimator: Hypergradient) -> Hypergradient:
    """Return the estimator with half the terms, whose gradient differs by about its error."""
    if isinstance(estimator, Unrolled) and estimator.steps > 1:
        return replace(estimator, steps=estimator.steps // 2)
    if isinstance(estimator, HessianFree) and estimator.terms > 1:
        return replace(estimator, terms=estimator.terms // 2)
    raise ValueError(
        f"{estimator} has no estimate of its error: give it two terms or more, or use "
        f"'conjugate_gradient'"
    )


def _objectives_without_rows(
    upper: Callable[[Tree, Tree], jax.Array], lower: Callable[[Tree, Tree], jax.Array]
) -> Objectives:
    """Return the objectives of one agent with a single row, which the losses ignore."""
    row = Rows(jnp.zeros((1,), jnp.int8), jnp.int32(1), batch=1)
    without_rows = lambda loss: lambda x, y, rows: loss(x, y)
    return Objectives(row, row, without_rows(upper), without_rows(lower))
