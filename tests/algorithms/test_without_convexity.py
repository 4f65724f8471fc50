"""Methods for lower levels with many solutions, where the limit is known in closed form.

g_i = (a_i y - x - b_i)^2 / 2 leaves y free along n_i, and f_i depends on that part together with x:
the optimistic solution has the y that is best for f, a vanishing regularization that of the
smallest norm, and methods for strongly convex g keep that of the start.
"""

import warnings
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import quad, ring

import diamond
from diamond import catalogue
from diamond.auto.adaptive_optimizers import Adam, DistanceOverGradients

KAPPA, RHO, CENTER, START = 0.8, 1.0, 1.0, 2.0
AGENTS, ANGLES = 3, np.array([0.3, 1.2, 2.5])
A = np.stack([np.cos(ANGLES), np.sin(ANGLES)], 1) * np.array([[1.0], [0.9], [1.2]])
N = np.stack([-np.sin(ANGLES), np.cos(ANGLES)], 1)
C, B = np.array([[1.0, -1.0], [0.5, 1.5], [-1.0, -0.5]]), np.array([0.5, -0.5, 1.0])


def upper(x, y, rows):
    distance = 0.5 * jnp.sum((y - rows["c"]) ** 2, 1)
    return jnp.mean(distance + KAPPA * x[0] * (rows["n"] @ y)) + 0.5 * RHO * (x[0] - CENTER) ** 2


def lower(x, y, rows):
    return jnp.mean(0.5 * (rows["a"] @ y - x[0] - rows["b"]) ** 2)


@cache
def flat_valley():
    """The problem of this page; y starts away from its solution of the smallest norm."""
    twice = lambda a: np.stack([a, a])
    rows = [
        {"a": twice(A[i]), "n": twice(N[i]), "c": twice(C[i]), "b": twice(B[i])}
        for i in range(AGENTS)
    ]
    init = lambda key: (jnp.zeros(1), jnp.full(2, START))
    return diamond.Problem(upper, lower, init, train=rows, valid=rows, convex=False)


def solution(selection):
    """Minimizer of x if the part of y along n is best for f, smallest, or that of the start."""
    squares = np.sum(A**2, 1)
    constant = np.mean((np.sum(A * C, 1) - B) / squares) + RHO * CENTER
    slope = np.mean(1 / squares) + RHO
    if selection == "optimistic":
        return (constant - KAPPA * np.sum(N * C, 1).mean()) / (slope - KAPPA**2)
    return (constant - KAPPA * (N.sum(1).mean() * START if selection == "start" else 0)) / slope


def limit(method, rounds=4000):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        run = diamond.simulate(
            flat_valley(), ring(AGENTS), method, rounds, every=rounds, progress=False
        )
    return float(np.mean(run.x))


GIVEN = dict(alpha=0.02, beta=0.4, delta=0.4, batch=2, order="atc")
METHODS = {
    "f2sa_fused": ("optimistic", diamond.f2sa_fused(**GIVEN, lam=400.0)),
    "f2sa": ("optimistic", diamond.f2sa(**GIVEN, lam=400.0)),
    "meha": ("optimistic", diamond.meha(**GIVEN, c=400.0)),
    "bome": ("optimistic", diamond.bome(**GIVEN | {"alpha": 0.01, "beta": 0.02})),
    "duet": ("smallest", diamond.duet(**GIVEN, mu=diamond.schedules.power(1.0, 10.0, 0.8))),
}


def test_the_three_selections_have_different_limits():
    limits = [solution(selection) for selection in ("optimistic", "smallest", "start")]
    assert min(abs(a - b) for a, b in zip(limits, limits[1:] + limits[:1])) > 0.1


@pytest.mark.wide
@pytest.mark.parametrize("name", METHODS)
def test_it_ends_at_its_selection_of_the_solutions(name):
    selection, method = METHODS[name]
    assert limit(method) == pytest.approx(solution(selection), abs=0.02)


@pytest.mark.wide
def test_a_method_for_strongly_convex_lower_levels_depends_on_the_start():
    given = {k: v for k, v in GIVEN.items() if k != "order"}
    soba = diamond.compose("carried", "plain", **given)
    assert limit(soba) == pytest.approx(solution("start"), abs=0.02)
    with pytest.warns(RuntimeWarning, match="needs strong convexity.*bome, duet, f2sa"):
        diamond.simulate(flat_valley(), ring(AGENTS), soba, 1, progress=False)


@pytest.mark.wide
def test_methods_that_need_no_convexity_do_not_warn_and_the_table_says_which():
    rows = {row.name: row for row in catalogue.methods_table()}
    without = catalogue.methods_without_convexity("personal")
    assert {"bome", "duet", "f2sa", "f2sa_fused", "meha", "solve"} == {*without}
    assert all(rows[name].convexity == "any" for name in without)
    assert rows["diamond"].convexity == rows["stable"].convexity == "strong"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        diamond.simulate(
            flat_valley(), ring(AGENTS), diamond.f2sa_fused(batch=2), 1, progress=False
        )


@pytest.mark.wide
def test_on_a_convex_problem_nothing_warns():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        diamond.simulate(quad(), ring(4), diamond.soba(batch=2), 1, progress=False)


@pytest.mark.wide
def test_open_steps_are_adaptive_only_where_the_lower_level_is_not_solved_for():
    adaptive = diamond.f2sa_fused(batch=2).specialize(flat_valley())
    assert isinstance(adaptive.x.optimizer, DistanceOverGradients)
    assert isinstance(adaptive.y.optimizer, Adam) and isinstance(adaptive.z.optimizer, Adam)
    assert diamond.f2sa_fused(batch=2).specialize(quad()).method.x.optimizer is None
    given = diamond.f2sa_fused(alpha=0.1, beta=0.1, batch=2).specialize(flat_valley())
    assert given.x.optimizer is None and given.y.optimizer is None
    run = diamond.simulate(
        flat_valley(), ring(AGENTS), diamond.f2sa_fused(batch=2), 25, every=5, progress=False
    )
    alpha = np.asarray(run.history["alpha"])
    assert (alpha[:5] == 0).all() and alpha[-1] > 0  # x rests for 20 rounds


@pytest.mark.wide
@pytest.mark.parametrize("name", ["meha", "sun_dsbo"])
def test_moreau_directions_have_their_fixed_point(name):
    """At finite weights the limit is that of a linear system, solved here in dense algebra."""
    maker, (c, gamma) = catalogue.maker(name), (7.0, 0.8)
    problem = quad(agents=1, noise=0.0, lower_level=maker().lower_levels[0])
    one = jax.tree.map(lambda a: a[0], problem.objectives(2))
    f, g = (lambda x, y: one.f(x, y, None)), (lambda x, y: one.g(x, y, None))
    x0, y0 = problem.start(0)
    n, k = np.size(x0), np.size(y0)

    def residual(v):
        x, y, z = v[:n], v[n : n + k], v[n + k :]
        f_x, f_y = jax.grad(f, (0, 1))(x, y)
        g_x = jax.grad(g)
        g_y = jax.grad(g, 1)
        pull = (y - z) / gamma
        return jnp.concatenate(
            [f_x + c * (g_x(x, y) - g_x(x, z)), f_y / c + g_y(x, y) - pull, g_y(x, z) - pull]
        )

    zero = jnp.zeros(n + 2 * k)
    expected = jnp.linalg.solve(jax.jacobian(residual)(zero), -residual(zero))[:n]
    method = maker(0.05, 0.2, 0.2, c=c, gamma=gamma, batch=2)
    run = diamond.simulate(
        problem, diamond.network.complete(1), method, 4000, every=4000, progress=False
    )
    np.testing.assert_allclose(np.ravel(run.x), expected, rtol=1e-5)
