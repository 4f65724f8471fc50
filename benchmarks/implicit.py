"""Gradients through solutions: `diamond.implicit`, unrolling, and jaxopt where it is installed.

    OPENBLAS_NUM_THREADS=1 python benchmarks/implicit.py [--small]

Ridge and logistic regression on 1,000 rows of 200 features, x the logarithm of a penalty for each
feature, and the fixed point y = tanh(W y + x) / 2 of 200 numbers, in float64 from y = 0.
"milliseconds" is the fastest of nine compiled calls, "error" that of the gradient relative to the
dense implicit formula at y*. Threads of OpenBLAS that wait for busy cores would take most time.
"""

import sys
import time

import jax
import jax.numpy as jnp
import numpy as np

from diamond import implicit

try:
    import jaxopt
except ImportError:
    jaxopt = None

IS_SMALL = "--small" in sys.argv
SIZE, ROWS, REPEATS = (5, 20, 1) if IS_SMALL else (200, 1000, 9)
UNROLLED = (20,) if IS_SMALL else (100, 1000)

random = np.random.default_rng(0)
features, test_features = random.normal(size=(2, ROWS, SIZE)) / SIZE**0.5
truth = random.normal(size=SIZE) * (np.arange(SIZE) % 4 == 0) * 3
targets, test_targets = (a @ truth + random.normal(size=ROWS) for a in (features, test_features))
weights = random.normal(size=(SIZE, SIZE)) / SIZE**0.5


def ridge(x, y):
    return jnp.mean((features @ y - targets) ** 2) + jnp.sum(jnp.exp(x) * y**2)


def logistic(x, y):
    losses = jnp.logaddexp(0.0, -(features @ y) * np.sign(targets))
    return jnp.mean(losses) + jnp.sum(jnp.exp(x) * y**2)


def test_error(y):
    return jnp.mean((test_features @ y - test_targets) ** 2)


def step(x, y):
    return jnp.tanh(weights @ y + x) / 2


def descent(lower):
    """Return a step of gradient descent with 1 / L of the loss at y = 0."""
    curvature = np.linalg.eigvalsh(jax.hessian(lower, 1)(START_X, jnp.zeros(SIZE)))[-1]
    return lambda x, y: y - jax.grad(lower, 1)(x, y) / curvature


def unroll(step, steps):
    def solve(x):
        return jax.lax.scan(lambda y, _: (step(x, y), None), jnp.zeros(SIZE), length=steps)[0]

    return solve


def dense_gradient(residual):
    """Return the gradient by the dense implicit formula, with y* by Newton's method in NumPy."""
    y = np.zeros(SIZE)
    jacobian = jax.jit(jax.jacobian(residual, (0, 1)))
    for _ in range(50):
        y = y - np.linalg.solve(jacobian(START_X, y)[1], residual(START_X, y))
    r_x, r_y = jacobian(START_X, y)
    return -np.asarray(r_x).T @ np.linalg.solve(np.asarray(r_y).T, jax.grad(test_error)(y))


def minimizers(lower):
    zero = jnp.zeros(SIZE)
    ways = {
        f"argmin, {solver}": lambda x, solver=solver: implicit.argmin(lower, x, zero, solver=solver)
        for solver in ("newton", "conjugate_gradient", "lbfgs")
        if lower is ridge or solver != "conjugate_gradient"
    }
    if jaxopt:
        loss = lambda y, x: lower(x, y)
        solver = jaxopt.LBFGS(loss, tol=1e-10, maxiter=1000)
        ways["jaxopt, LBFGS"] = lambda x: solver.run(zero, x).params
    for steps in UNROLLED:
        ways[f"unrolled, {steps} steps"] = unroll(descent(lower), steps)
    return ways


def fixed_points():
    zero = jnp.zeros(SIZE)
    ways = {
        "fixed_point": lambda x: implicit.fixed_point(step, x, zero),
        "root": lambda x: implicit.root(lambda x, y: y - step(x, y), x, zero),
    }
    if jaxopt:
        solver = jaxopt.FixedPointIteration(lambda y, x: step(x, y), tol=1e-11, maxiter=1000)
        ways["jaxopt, FixedPointIteration"] = lambda x: solver.run(zero, x).params
    for steps in UNROLLED:
        ways[f"unrolled, {steps} steps"] = unroll(step, steps)
    return ways


def measure(solve, exact):
    """Return the milliseconds of a call, and the relative error of the gradient."""
    gradient = jax.jit(jax.grad(lambda x: test_error(solve(x))))
    error = np.linalg.norm(gradient(START_X) - exact) / np.linalg.norm(exact)
    times = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        gradient(START_X).block_until_ready()
        times.append(time.perf_counter() - start)
    return 1e3 * min(times), error


def main():
    problems = {
        "ridge": (minimizers(ridge), jax.grad(ridge, 1)),
        "logistic": (minimizers(logistic), jax.grad(logistic, 1)),
        "fixed point": (fixed_points(), lambda x, y: y - step(x, y)),
    }
    print("| problem | solver | milliseconds | error |\n| --- | --- | --- | --- |")
    for name, (ways, residual) in problems.items():
        exact = dense_gradient(residual)
        for way, solve in ways.items():
            milliseconds, error = measure(solve, exact)
            print(f"| {name} | {way} | {milliseconds:.1f} | {error:.0e} |", flush=True)


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    START_X = jnp.full(SIZE, -5.0)
    main()
