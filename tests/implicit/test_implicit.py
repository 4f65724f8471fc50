"""Minimizers, roots and fixed points against closed forms, differences and unrolling."""

import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from fast_compilation import without_optimizations

from diamond import hypergradient as hg
from diamond import implicit, tree

RANDOM = np.random.default_rng(3)
A, B = RANDOM.normal(size=(9, 4)), RANDOM.normal(size=9)
V, D = RANDOM.normal(size=(5, 4)), RANDOM.normal(size=5)
GRAM, MOMENT = A.T @ A, A.T @ B
X = jnp.asarray(0.3)


@pytest.fixture(autouse=True)
def fast_compilation():
    with without_optimizations():
        yield


def ridge(x, y):
    return 0.5 * jnp.sum((A @ y - B) ** 2) + 0.5 * jnp.exp(x) * jnp.sum(y**2)


def validation(x, y):
    return 0.5 * jnp.sum((V @ y - D) ** 2) + 0.1 * x**2


def closed_form(x):
    """y*(x), its derivative, and the first two derivatives of validation(x, y*(x)), in NumPy."""
    penalty = np.exp(float(x))
    inverse = np.linalg.inv(GRAM + penalty * np.eye(4))
    y = inverse @ MOMENT
    slope = -penalty * inverse @ y
    curvature = slope - 2 * penalty * inverse @ slope
    residual = V.T @ (V @ y - D)
    first = slope @ residual + 0.2 * float(x)
    second = curvature @ residual + np.sum((V @ slope) ** 2) + 0.2
    return y, slope, first, second


def logistic(x, y):
    scores = A @ y["w"] + y["b"]
    penalty = jnp.exp(x["penalty"]) * jnp.sum((y["w"] - x["center"]) ** 2) + 0.1 * y["b"] ** 2
    return jnp.mean(jnp.logaddexp(0.0, -scores * np.sign(B))) + penalty


LOGISTIC_X = {"penalty": jnp.asarray(-1.0), "center": jnp.asarray([0.1, 0.2, -0.3, 0.0])}
LOGISTIC_Y = {"w": jnp.zeros(4), "b": jnp.asarray(0.0)}


@pytest.mark.wide(keep=["newton", "conjugate_gradient"])
@pytest.mark.parametrize("solver", ["newton", "conjugate_gradient", "lbfgs", "function"])
def test_ridge_and_its_derivatives_are_the_closed_form(solver):
    if solver == "lbfgs":
        pytest.importorskip("optax")
    exact = lambda loss, y0: y0 - jnp.linalg.solve(jax.hessian(loss)(y0), jax.grad(loss)(y0))
    chosen = exact if solver == "function" else solver

    @jax.jit
    def evaluate(x):
        y = lambda x: implicit.argmin(ridge, x, jnp.zeros(4), solver=chosen)
        return y(x), jax.jvp(y, (x,), (1.0,))[1], jax.grad(lambda x: validation(x, y(x)))(x)

    for actual, expected in zip(evaluate(X), closed_form(X)):
        np.testing.assert_allclose(actual, expected, rtol=1e-8)


@pytest.mark.wide
def test_lbfgs_finds_a_minimum_that_is_far():
    pytest.importorskip("optax")
    valley = lambda x, y: 100 * (y[1] - y[0] ** 2) ** 2 + (x - y[0]) ** 2  # Rosenbrock's
    solve = lambda x: implicit.argmin(valley, x, jnp.array([-1.2, 1.0]), solver="lbfgs")
    y, slope = jax.jit(lambda x: (solve(x), jax.jacfwd(solve)(x)))(1.0)
    np.testing.assert_allclose([y, slope], [[1, 1], [1, 2]], rtol=1e-8)


def hyper_objective(x):
    return validation(x, implicit.argmin(ridge, x, jnp.zeros(4), solver="conjugate_gradient"))


def test_second_derivatives_of_ridge_are_the_closed_form_for_many_x_at_once():
    points = jnp.asarray([-1.0, 0.3, 2.0])
    second = jax.jit(jax.vmap(jax.hessian(hyper_objective)))(points)
    np.testing.assert_allclose(second, [closed_form(x)[3] for x in points], rtol=1e-7)


def test_derivatives_are_those_of_an_unrolled_solver():
    smooth = lambda x, y: jnp.sum(jnp.logaddexp(0.0, A @ y - x * B)) + 0.5 * jnp.sum(y**2)

    def unrolled(x):
        descend = lambda y, _: (y - 0.2 * jax.grad(smooth, 1)(x, y), None)
        return jax.lax.scan(descend, jnp.zeros(4), length=400)[0]

    implied = lambda x: implicit.argmin(smooth, x, jnp.zeros(4))
    expected, actual = jax.jit(lambda x: [jax.jacfwd(f)(x) for f in (unrolled, implied)])(X)
    np.testing.assert_allclose(actual, expected, rtol=1e-8)


def test_pytrees_have_the_derivatives_of_differences():
    @jax.jit
    def value(x):
        y = implicit.argmin(logistic, x, LOGISTIC_Y)
        return jnp.sum(jnp.sin(y["w"])) + y["b"] ** 2

    gradient = jax.jit(jax.grad(value))(LOGISTIC_X)
    shift = {"penalty": np.array(1e-5), "center": 1e-5 * np.array([0.5, 0, 1, 0])}
    ahead, behind = (tree.axpy(sign, shift, LOGISTIC_X) for sign in (1, -1))
    slope = sum(jnp.vdot(gradient[name], shift[name]) for name in shift)
    np.testing.assert_allclose(slope, (value(ahead) - value(behind)) / 2, rtol=1e-6)


def test_a_guess_may_be_a_number_of_python():
    solution = lambda x: implicit.argmin(lambda x, y: (y - x**2) ** 2, x, 0.0)
    assert float(solution(3.0)) == pytest.approx(9) and float(jax.grad(solution)(3.0)) == 6


def test_what_the_loss_closes_over_is_differentiated_and_data_of_integers_are_passed():
    counts = jnp.asarray([1, 2, 3, 4])

    def y(x):
        lower = lambda data, y: jnp.sum(data * (y - x * data) ** 2)
        return implicit.argmin(lower, counts, jnp.zeros(4), solver="conjugate_gradient")

    np.testing.assert_allclose(jax.jit(jax.jacrev(y))(2.0), counts, rtol=1e-9)
    of_data = lambda x, y: jnp.sum(x["n"] * (y - x["c"]) ** 2)
    total = lambda c: jnp.sum(implicit.argmin(of_data, {"n": counts, "c": c}, jnp.zeros(4)))
    np.testing.assert_allclose(jax.jit(jax.grad(total))(jnp.ones(4)), jnp.ones(4), rtol=1e-9)


def test_a_root_and_a_fixed_point_have_the_known_derivatives():
    """Kepler's equation y - x sin(y) = 1, and its derivative sin(y) / (1 - x cos(y))."""
    equation = lambda x, y: {"y": y["y"] - x * jnp.sin(y["y"]) - 1}
    following = lambda x, y: {"y": 1 + x * jnp.sin(y["y"])}
    start = {"y": jnp.ones(())}
    of_root = lambda x: implicit.root(equation, x, start)["y"]
    of_map = lambda x: implicit.fixed_point(following, x, start)["y"]

    @jax.jit
    def evaluate(x):
        both = [(y(x), jax.grad(y)(x), jax.jvp(y, (x,), (1.0,))[1]) for y in (of_root, of_map)]
        return both, jax.grad(jax.grad(of_root))(x)

    both, second = evaluate(X)
    for y, reverse, forward in both:
        np.testing.assert_allclose(y - 0.3 * np.sin(y), 1, rtol=1e-9)
        expected = np.sin(y) / (1 - 0.3 * np.cos(y))
        np.testing.assert_allclose([reverse, forward], expected, rtol=1e-9)
    step = lambda x: evaluate(X + x)[0][0][1]
    np.testing.assert_allclose(second, (step(1e-5) - step(-1e-5)) / 2e-5, rtol=1e-7)


@pytest.mark.wide
def test_a_large_system_without_symmetry_has_the_derivative_of_its_inverse():
    size = 300  # beyond those that are formed
    matrix = np.eye(size) + 0.3 * RANDOM.normal(size=(size, size)) / size**0.5
    right = RANDOM.normal(size=size)
    value = lambda b: jnp.sum(implicit.root(lambda b, y: matrix @ y - b, b, jnp.zeros(size)) ** 2)
    y = np.linalg.solve(matrix, right)
    expected = 2 * np.linalg.solve(matrix.T, y)
    np.testing.assert_allclose(jax.jit(jax.grad(value))(jnp.asarray(right)), expected, rtol=1e-6)


def decreasing(x, y):
    """A loss without a minimum."""
    return jnp.sum(jnp.exp(x * y))


def test_without_a_solution_the_result_is_nan():
    minimize = lambda x: implicit.argmin(decreasing, x, jnp.zeros(2), steps=3)
    iterate = lambda x: implicit.fixed_point(lambda x, y: 2 * y + x, x, jnp.ones(2), steps=9)
    assert np.isnan(jax.jit(lambda x: (minimize(x), iterate(x)))(X)).all()


@pytest.mark.wide
def test_the_error_says_that_there_is_no_solution():
    y, error = implicit.argmin(decreasing, X, jnp.zeros(2), steps=3, with_error=True)
    assert np.isfinite(y).all() and error > 0.1
    assert np.isnan(implicit.root(lambda x, y: y**2 + 1, X, jnp.ones(1))).all()
    y, error = implicit.root(lambda x, y: y**2 - x, X, jnp.ones(1), with_error=True)
    np.testing.assert_allclose(y, X**0.5)
    assert error < 1e-9


@pytest.mark.wide
def test_a_derivative_that_does_not_exist_is_nan():
    """y is free in one direction: a solution that x moves there has no derivative."""
    flat = lambda x, y: (y[0] - x) ** 2 + 0 * y[1]
    solve = lambda x: implicit.argmin(flat, x, jnp.zeros(2))
    np.testing.assert_allclose(jax.jacfwd(solve)(X), [1, 0])
    quartic = lambda x, y: jnp.sum(y**4) / 4 - (x - X) * jnp.sum(y)  # y* = cbrt(x - X)
    solve = lambda x: implicit.argmin(quartic, x, jnp.zeros(1))
    assert np.isnan(jax.jacfwd(solve)(X)).all()


def test_single_precision_is_solved_to_its_tolerance(float32):
    lower = lambda x, y: jnp.sum((y - x) ** 2 * jnp.arange(1, 4)) + jnp.sum(y) ** 2
    y = jax.jit(lambda x: implicit.argmin(lower, x, jnp.zeros(3)))(0.3)
    matrix = np.diag([1.0, 2.0, 3.0]) + 1
    assert y.dtype == jnp.float32
    np.testing.assert_allclose(y, np.linalg.solve(matrix, [0.3, 0.6, 0.9]), rtol=1e-5)


METHODS = {  # and the largest error
    "exact": 1e-10,
    "conjugate_gradient": 1e-8,
    "neumann": 0.1,
    "unrolled": 0.1,
    "hessian_free": 0.1,
    "chebyshev": 0.1,
}


@pytest.mark.wide(keep=["conjugate_gradient", "unrolled"])
@pytest.mark.parametrize("name", METHODS)
def test_a_hypergradient_is_the_closed_form_up_to_its_error(name):
    method = hg.chebyshev(40) if name == "chebyshev" else name
    estimate = lambda x: implicit.hypergradient(validation, ridge, x, jnp.zeros(4), method=method)
    result, (y, _, gradient, _) = jax.jit(estimate)(X), closed_form(X)
    np.testing.assert_allclose(result.y, y, rtol=1e-9)
    assert result.y_error < 1e-9 and result.error <= METHODS[name]
    assert abs(result.gradient - gradient) <= 10 * max(result.error, 1e-9) * abs(gradient)


@pytest.mark.wide
def test_more_steps_of_an_unrolled_solver_from_a_given_point_have_a_smaller_error():
    def estimate(steps):
        method = hg.unrolled(steps, 0.05)
        return implicit.hypergradient(
            validation, ridge, X, jnp.zeros(4), method=method, solve=False
        )

    few, many = estimate(20), estimate(400)
    assert many.error < 1e-3 < few.error and np.isnan(many.y_error)
    np.testing.assert_allclose(many.gradient, closed_form(X)[2], rtol=1e-3)


def norm_of(x, y):
    return jnp.sum(y**2)


WRONG = {
    "y0 = {} has no numbers": lambda: implicit.argmin(norm_of, 1.0, {}),
    "y0 contains numbers of type int64": lambda: implicit.argmin(norm_of, 1.0, jnp.arange(2)),
    "y0 contains 'a', which is no array": lambda: implicit.root(norm_of, 1.0, ["a"]),
    r"lower\(x, y\) returns float64\[2\]: it must return one real number": lambda: implicit.argmin(
        lambda x, y: y, 1.0, jnp.zeros(2)
    ),
    r"equation\(x, y\) returns float64\[\], but y0 is float64\[2\]": lambda: implicit.root(
        norm_of, 1.0, jnp.zeros(2)
    ),
    r"map\(x, y\) returns \[float64\[1\]\], but y0 is float64\[1\]": lambda: implicit.fixed_point(
        lambda x, y: [y], 1.0, jnp.zeros(1)
    ),
    "tolerance = 0 must be a number between 0 and 1": lambda: implicit.argmin(
        norm_of, 1.0, jnp.zeros(1), tolerance=0
    ),
    "steps = 0 must be a whole number, 1 or more": lambda: implicit.argmin(
        norm_of, 1.0, jnp.zeros(1), steps=0
    ),
    "solver = 'bfgs'; there are 'newton', 'conjugate_gradient' and 'lbfgs'": lambda: (
        implicit.argmin(norm_of, 1.0, jnp.zeros(1), solver="bfgs")
    ),
    "method = 'cg'; there are 'exact', 'conjugate_gradient'": lambda: implicit.hypergradient(
        norm_of, norm_of, 1.0, jnp.zeros(1), method="cg"
    ),
    "the estimator needs z of a previous round": lambda: implicit.hypergradient(
        norm_of, norm_of, 1.0, jnp.zeros(1), method=hg.warm_start()
    ),
    "has no estimate of its error: give it two terms or more": lambda: implicit.hypergradient(
        norm_of, norm_of, 1.0, jnp.zeros(1), method=hg.unrolled(1)
    ),
}


@pytest.mark.parametrize("message", WRONG)
def test_wrong_arguments_are_refused_in_a_sentence(message):
    with pytest.raises(ValueError, match=message):
        WRONG[message]()


def test_without_optax_the_message_names_the_remedy(monkeypatch):
    monkeypatch.setitem(sys.modules, "optax", None)
    with pytest.raises(ImportError, match=r"solver = 'lbfgs' needs optax: pip install"):
        implicit.argmin(norm_of, 1.0, jnp.zeros(1), solver="lbfgs")
