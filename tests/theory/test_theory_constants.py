"""Constants found in data, on problems whose constants are known in closed form."""

from types import SimpleNamespace

import counting_losses
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from fast_compilation import without_optimizations
from helpers import agent_of, quad, ring

from diamond import network
from diamond.core.linear_solvers import lanczos
from diamond.metrics import lower_solution
from diamond.problem import Problem
from diamond.theory import Constants, estimate
from diamond.theory.extreme_search import supremum

BATCH = 4
RADIUS = 0.7
STIFF, CUBE, COUPLED = 3.0, 0.5, 0.4  # of g below
BOWL, SKEW, TILT = 0.8, 0.6, 0.3  # of f below


def cubic_upper(x, y, rows):
    """f = BOWL x_0^2 / 2 + SKEW x_0^3 / 6 + TILT y_1, and noise <y, row>."""
    own = BOWL * x[0] ** 2 / 2 + SKEW * x[0] ** 3 / 6 + TILT * y[1]
    return own + jnp.mean(rows @ y)


def cubic_lower(x, y, rows):
    """g = STIFF |y|^2 / 2 + CUBE y_0^3 / 6 + COUPLED x_0 y_0^2 / 2 + x_1 y_1, and noise."""
    own = STIFF * y @ y / 2 + CUBE * y[0] ** 3 / 6 + COUPLED * x[0] * y[0] ** 2 / 2
    return own + x[1] * y[1] + jnp.mean(rows @ y)


@pytest.fixture(scope="module")
def cubic():
    """y*(0) = 0 = y_0, so the search is in one ball about 0; in single precision."""
    random = np.random.default_rng(0)
    centred = lambda: [a - a.mean(0) for a in random.normal(size=(3, 10, 2))]
    init = lambda key: (jnp.zeros(2), jnp.zeros(2))
    with without_optimizations(), jax.enable_x64(False):
        problem = Problem(cubic_upper, cubic_lower, init, centred(), centred())
        return estimate(problem, network.complete(3), BATCH, radius=RADIUS)


@pytest.fixture(scope="module")
def linear():
    """The quadratic problem and its constants, K = 1, rows drawn one by one."""
    q = quad(rows=(12, 9, 12, 7))
    with without_optimizations():
        return q, estimate(q, ring(4), BATCH, terms=1, sampling="rows")


def near(result, name, expected, sigmas=4.0):
    assert abs(getattr(result, name) - expected) <= sigmas * result.errors[name], name


def test_on_a_quadratic_the_searches_find_the_matrices_norms(linear):
    q, result = linear
    norm = lambda a: np.linalg.norm(a, 2, axis=(1, 2)).max()
    eye = np.broadcast_to(np.eye(4), (4, 4, 4))
    expected = {
        "mu_g": 0.5,
        "L_g": 1.5,
        "L_g_full": 1.5,
        "C_gxy": norm(q.B),
        "L_fx": norm(np.concatenate([q.P, q.D], axis=2)),
        "L_fy": norm(np.concatenate([q.D.transpose(0, 2, 1), eye], axis=2)),
        "L_gxy": 0.0,
        "L_gyy": 0.0,
        "lam": ring(4).lam,
    }
    for name, value in expected.items():
        np.testing.assert_allclose(getattr(result, name), value, rtol=1e-4, err_msg=name)
        assert getattr(result, name) <= value + 1e-12 or name == "mu_g"


def test_the_noise_is_that_of_the_rows(linear):
    q, result = linear
    train, valid = ([a["point"] for a in q.rows[part]] for part in ("train", "valid"))
    spread = lambda a: ((a - a.mean(0)) ** 2).sum(1).mean() / BATCH
    # On one term, f_x - g_xy f_y / L has the noise of B' a_n / L.
    through = [spread(a @ b / result.L_g) for a, b in zip(valid, q.B)]
    near(result, "sigma_g", np.sqrt(max(map(spread, train))))
    near(result, "sigma_df", np.sqrt(max(map(spread, valid))))
    near(result, "sigma_f", np.sqrt(max(through)))
    assert result.errors["sigma_g"] < 0.05 * result.sigma_g


def test_what_compares_the_agents_is_exact(linear):
    q, result = linear
    x = np.zeros(3)
    y = q.lower_solution(x)
    h = q.surrogate(x, y)
    apart = ((h - h.mean(0)) ** 2).sum()
    np.testing.assert_allclose(result.heterogeneity, apart / 4 / (h.mean(0) ** 2).sum(), rtol=1e-8)
    losses = [0.5 * ((y[i] - a["point"]) ** 2).sum(1).mean() for i, a in enumerate(q.rows["valid"])]
    np.testing.assert_allclose(result.start, [np.mean(losses), (y**2).sum(), apart], rtol=1e-8)


@pytest.mark.wide
def test_searches_climb_to_the_rim_of_the_ball(cubic):
    steep = np.hypot(CUBE, COUPLED)  # g_yy is STIFF + CUBE y_0 + COUPLED x_0 in its first entry
    expected = {
        "L_gyy": steep,
        "L_gxy": COUPLED,  # g_xy is COUPLED y_0 in its first entry, 1 in its last
        "L_g_full": STIFF + steep * RADIUS,
        "C_gxy": 1.0,
        "L_fx": BOWL + SKEW * RADIUS,
        "L_fy": 0.0,
        "C_fy": TILT,
    }
    for name, value in expected.items():
        np.testing.assert_allclose(getattr(cubic, name), value, 1e-3, 1e-6, err_msg=name)
    assert STIFF - steep * RADIUS <= cubic.mu_g <= STIFF
    assert cubic.errors["L_gyy"] < 1e-5


def test_without_a_radius_the_suprema_are_those_of_the_point():
    tensor = np.random.default_rng(1).normal(size=(3, 4))
    form = lambda p, w, z: w @ (tensor * jnp.sum(p)) @ z
    vectors = jnp.ones(3), jnp.arange(1.0, 5.0)
    p = jnp.full(2, 0.5)
    result = supremum(form, p, p, vectors, radius=0.0, steps=300)
    np.testing.assert_allclose(result, np.linalg.norm(tensor, 2), rtol=1e-10)


def test_the_norm_of_a_trilinear_form_is_found():
    a, b, c = (np.eye(4)[k] for k in (0, 2, 3))
    form = lambda p, d, w, z: 2.0 * (d @ a) * (w @ b) * (z @ c) - 0.5 * (d @ b) * (w @ c) * (z @ a)
    vectors = (jnp.ones(4), jnp.arange(1.0, 5.0), jnp.ones(4))
    np.testing.assert_allclose(supremum(form, a, a, vectors, radius=0.0, steps=80), 2.0, rtol=1e-12)


@pytest.mark.wide
@pytest.mark.parametrize("values", [np.linspace(0.1, 9, 30), np.ones(30), np.repeat([-2, 5], 15)])
def test_lanczos_finds_the_ends_of_a_spectrum(values):
    basis = np.linalg.qr(np.random.default_rng(0).normal(size=(30, 30)))[0]
    matrix = basis * values @ basis.T
    start = jnp.asarray(np.random.default_rng(1).normal(size=30))
    result = lanczos(lambda w: matrix @ w, start)
    np.testing.assert_allclose(result[:2], [values.min(), values.max()], rtol=1e-9)


@pytest.mark.wide
def test_a_short_lanczos_knows_its_error():
    values = np.linspace(0, 1, 400)
    result = lanczos(
        lambda w: values * w, jnp.asarray(np.random.default_rng(1).normal(size=400)), 8
    )
    assert 0 <= result.smallest and result.largest <= 1 and result.error > 0
    for end in result[:2]:
        assert np.abs(values - end).min() <= result.error


@pytest.mark.wide
def test_solving_the_lower_level_counts_what_it_computes():
    problem = counting_losses.problem()
    x, y = problem.start(0)
    mine = agent_of(problem.objectives(), 0)
    counting_losses.counts.clear()
    result = jax.block_until_ready(jax.jit(lower_solution.solve_lower_level)(mine, x, y))
    expected = counting_losses.counted()
    assert result.cost.samples == 7 and result.cost.hvps == expected["hvps"]
    assert result.cost.gradients == expected["gradients"]


@jax.custom_jvp
def rounded(y):
    """y, but for a rounding error that linearization does not make."""
    return y + 1e-9


@jax.custom_jvp
def bowl(y):
    return jnp.sum(y**2) / 2


rounded.defjvp(lambda primals, tangents: (primals[0], tangents[0]))
bowl.defjvp(lambda primals, tangents: (bowl(*primals), rounded(primals[0]) @ tangents[0]))


@pytest.mark.wide
def test_a_solution_up_to_rounding_counts_as_one():
    problem = SimpleNamespace(g=lambda x, y, where: bowl(y), train=SimpleNamespace(count=1))
    result = lower_solution.solve_lower_level(problem, None, jnp.zeros(2))
    assert result.error == 0 and not result.y.any()


def test_searching_talking_and_solving_are_paid_for(linear):
    q, result = linear
    rows = q.counts("train").mean()
    # 24 turns of each vector and of the point from 4 places, for C_gxy and L_gxy; g_xy z once for
    # the exact hypergradient and in each of 2 x 256 sampled ones.
    assert result.cost.jvps == 4 * 24 * (3 + 4) * rows + rows + 512 * BATCH
    mixing, size, numbers = ring(4).rounds_to_mix(), 8, 12
    assert result.rounds == 2 * 2 + 2 * mixing
    assert result.bytes == 2 * 4 * size * (2 * numbers + mixing * (3 + 1))


def test_what_is_no_bilevel_problem_of_the_paper_is_refused():
    fine = dict(C_gxy=1, C_fy=1, L_fx=1, L_fy=1, L_gxy=1, L_gyy=1, agents=2, lam=0.5)
    with pytest.raises(ValueError, match="not strongly convex"):
        Constants(mu_g=0.0, L_g=1.0, **fine)
    with pytest.raises(ValueError, match="below mu_g"):
        Constants(mu_g=2.0, L_g=1.0, **fine)
    with pytest.raises(ValueError, match="make a network of 4"):
        estimate(quad(), ring(5))


def test_a_table_shows_every_number_with_its_error(linear):
    text = str(linear[1])
    for name in ("mu_g", "L_gyy", "sigma_f", "heterogeneity", "lam"):
        assert name in text
    assert text.count("+-") == len(linear[1].errors)
