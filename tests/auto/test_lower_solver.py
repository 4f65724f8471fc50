"""y, z and the hypergradient of the solver of the lower level, against dense solutions."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import logistic, quad
from jax.flatten_util import ravel_pytree

from diamond.auto import lower_solver
from diamond.auto.curvature_pairs import no_pairs
from diamond.auto.lower_solver import FINISHED, LowerTask
from diamond.auto.sampled_losses import SampledLosses
from diamond.problem import Problem

INFINITE = jnp.asarray(jnp.inf)


def sampled(problem, rows, agent=1, batch=4):
    """The losses of an agent on its first rows, and the start as vectors."""
    (x, to_x), (y, to_y) = map(ravel_pytree, problem.start(0))
    own = problem.objectives(batch).for_agent(agent)
    return SampledLosses(own, to_x, to_y, jnp.int32(rows), jnp.int32(rows)), x, y


def first_rows(problem, part, rows, agent=1):
    return jax.tree.map(lambda a: jnp.asarray(a)[:rows], problem.rows[part][agent])


def task_at(x, relative=1.0, **changes):
    fields = dict(direction=x * 0, is_probe=jnp.bool_(False), enough=1e-12, drop=1e-10)
    fields |= dict(newton_steps=20, relative=relative, value_error=INFINITE, z_error=INFINITE)
    fields |= changes
    return LowerTask(x, **{name: jnp.asarray(value) for name, value in fields.items()})


@pytest.mark.wide
@pytest.mark.parametrize("make", [lambda: quad(rows=12, noise=0.5), lambda: logistic(rows=12)])
@pytest.mark.parametrize("rows", [5, 12])
def test_derivatives_are_those_of_the_first_rows(make, rows):
    problem = make()
    losses, x, y = sampled(problem, rows)
    flat = lambda loss, part: (
        lambda x, y: loss(losses.to_x(x), losses.to_y(y), first_rows(problem, part, rows))
    )
    f, g = flat(problem.upper, "valid"), flat(problem.lower, "train")
    x, y = x + 0.1, y + 0.3
    d, v = jnp.linspace(1, 2, x.size), jnp.linspace(-1, 2, y.size)
    g_y = jax.grad(g, 1)
    close = lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)
    value, f_x, f_y = losses.upper(x, y)
    close(value, f(x, y))
    close(f_x, jax.grad(f)(x, y))
    close(f_y, jax.grad(f, 1)(x, y))
    close(losses.lower_gradient(x, y), g_y(x, y))
    close(losses.product(x, y, v), jax.jacobian(g_y, 1)(x, y) @ v)
    close(losses.response(x, y, d), jax.jacobian(g_y, 0)(x, y) @ d)
    close(losses.cross_product(x, y, v), jax.jacobian(g_y, 0)(x, y).T @ v)
    hessian = jax.hessian(lambda both: f(both[: x.size], both[x.size :]))(jnp.append(x, y))
    close(jnp.append(*losses.upper_product(x, y, d, v)), hessian @ jnp.append(d, v))


@pytest.mark.wide
@pytest.mark.parametrize("make", [lambda: quad(rows=12, noise=0.5), lambda: logistic(rows=12)])
def test_with_high_accuracy_it_finds_the_dense_solution(make):
    problem = make()
    losses, x, y = sampled(problem, 12)
    pairs = no_pairs(20, y)
    task = task_at(x, relative=1e-9)
    start = lower_solver.begin(task, y, 0 * y, pairs, has_lower=True)
    solved, cost = jax.jit(lambda start: lower_solver.solve_locally(losses, task, start))(start)
    assert solved.phase == FINISHED
    gradient = lambda y: losses.lower_gradient(x, y)
    assert np.abs(gradient(solved.y)).max() < 1e-8
    g_yy = jax.vmap(lambda v: losses.product(x, solved.y, v))(jnp.eye(y.size))
    _, f_x, f_y = losses.upper(x, solved.y)
    z = np.linalg.solve(g_yy, f_y)
    np.testing.assert_allclose(solved.z, z, rtol=1e-5, atol=1e-8)
    h = f_x - losses.cross_product(x, solved.y, z)
    np.testing.assert_allclose(solved.hypergradient, h, rtol=1e-5, atol=1e-8)
    assert all(int(c) % 12 == 0 for c in cost) and cost.min() > 0


@pytest.mark.wide
def test_the_value_is_as_accurate_as_asked_for():
    """|z' g_y| stays below `value_error` although y is otherwise solved roughly."""
    problem = logistic(rows=12)
    losses, x, y = sampled(problem, 12)
    z, rough = jnp.full(y.size, 3.0), dict(enough=0.3, drop=0.3, newton_steps=1)
    errors = []
    for allowed in (jnp.inf, 1e-6):
        task = task_at(x, value_error=allowed, **rough)
        start = lower_solver.begin(task, y, z, no_pairs(20, y), has_lower=True)
        solved, _ = lower_solver.solve_locally(losses, task, start)
        errors.append(abs(float(z @ solved.g)))
    assert errors[1] <= 1e-6 < errors[0]


@pytest.mark.wide
def test_a_probe_measures_the_curvature_of_the_objective():
    """After y and z are solved, pairs span all of y, so that y follows x linearly."""
    problem = quad(rows=12, noise=0.5)
    losses, x, y = sampled(problem, 12)
    task = task_at(x, relative=1e-9)
    start = lower_solver.begin(task, y, 0 * y, no_pairs(20, y), has_lower=True)
    solved, _ = lower_solver.solve_locally(losses, task, start)
    d = jnp.ones(x.size) / jnp.sqrt(x.size)
    probe = task_at(x, direction=d, is_probe=True)
    start = lower_solver.begin(probe, solved.y, solved.z, solved.pairs, has_lower=True)
    probed, _ = lower_solver.solve_locally(losses, probe, start)

    def objective(t):
        g_yy = jax.vmap(lambda v: losses.product(x, y, v))(jnp.eye(y.size))
        point = x + t * d
        minimizer = solved.y - jnp.linalg.solve(g_yy, losses.lower_gradient(point, solved.y))
        return losses.upper(point, minimizer)[0]

    expected = jax.grad(jax.grad(objective))(0.0)
    np.testing.assert_allclose(probed.curvature, expected, rtol=1e-6)
    shift = np.linalg.norm(losses.response(x, solved.y, d))
    np.testing.assert_allclose(probed.shift, shift, rtol=1e-9)


@pytest.mark.wide
@pytest.mark.parametrize(("curvature", "has_negative_curvature"), [(0.5, 0), (-0.5, 1)])
def test_negative_curvature_is_noticed(curvature, has_negative_curvature):
    rows = [{"a": np.ones(4)}]
    curvatures = jnp.array([1.0, curvature])
    upper = lambda x, y, r: jnp.mean(r["a"]) * jnp.sum((y - x) ** 2)
    lower = lambda x, y, r: jnp.mean(r["a"]) * (jnp.sum(curvatures * y**2) + x @ y + jnp.sum(y**4))
    problem = Problem(upper, lower, lambda key: (jnp.ones(2), jnp.zeros(2)), rows, rows)
    losses, x, y = sampled(problem, 4, agent=0)
    start = lower_solver.begin(task_at(x), y, y, no_pairs(20, y), has_lower=True)
    solved, _ = lower_solver.solve_locally(losses, task_at(x), start)
    assert solved.has_negative_curvature == has_negative_curvature


@pytest.mark.wide
def test_a_loss_that_is_not_a_number_ends_the_solution():
    problem = quad(rows=12)
    losses, x, y = sampled(problem, 12)
    task = task_at(x * jnp.nan)
    start = lower_solver.begin(task, y, 0 * y, no_pairs(20, y), has_lower=True)
    solved, _ = jax.jit(lambda start: lower_solver.solve_locally(losses, task, start))(start)
    assert solved.phase == FINISHED and np.isnan(solved.value)
