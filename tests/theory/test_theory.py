"""Lemmas 1 to 3 and Theorem 1: their formulas, and that they hold where all is known."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from fast_compilation import without_optimizations
from helpers import agent_of, quad, sample_of

from diamond.hypergradient import neumann, neumann_sum
from diamond.problem import Problem
from diamond.theory import Constants, Start, bias, descent, lemma1, lemma2, right_side, theorem1
from diamond.theory import terms as wanted_terms
from diamond.theory.theorem import _limits

PLAIN = Constants(
    agents=3, lam=0.5, mu_g=0.5, L_g=2.0, C_gxy=3.0, C_fy=5.0, L_fx=7.0, L_fy=11.0, L_gxy=13.0,
    L_gyy=17.0, sigma_f=0.3, sigma_g=0.2, start=Start(2.0, 3.0, 5.0),
)  # fmt: skip


def constants_of(q, C_fy):
    """Those of the quadratic problem, in closed form, where ||f_y|| <= C_fy."""
    norm = lambda a: np.linalg.norm(a, 2, axis=(1, 2)).max()
    eye = np.broadcast_to(np.eye(q.A.shape[1]), q.A.shape)
    return Constants(
        agents=len(q.A),
        lam=0.5,
        mu_g=0.5,
        L_g=1.5,
        C_gxy=norm(q.B),
        C_fy=C_fy,
        L_fx=norm(np.concatenate([q.P, q.D], axis=2)),
        L_fy=norm(np.concatenate([q.D.transpose(0, 2, 1), eye], axis=2)),
        L_gxy=0.0,
        L_gyy=0.0,
    )


@pytest.mark.quick
def test_lemma_1_by_hand():
    # 7 + 11 * 3 / 0.5 + 5 (13 / 0.5 + 17 * 3 / 0.25) = 7 + 66 + 5 (26 + 204)
    assert lemma1(PLAIN) == (1223.0, 6.0, 1223.0 * 7)


@pytest.mark.quick
def test_lemma_2_by_hand():
    # 2 mu L - mu^2 = 1.75, (L - mu)^2 = 2.25, K = 2
    wanted = 2 * 49 + 6 * 9 * 121 * 2 / 1.75 + 6 * 25 * 169 * 2 / 1.75
    wanted += 6 * 9 * 25 * 289 * 8 / (2.25 * 1.75)
    np.testing.assert_allclose(lemma2(PLAIN, 2) ** 2, wanted, rtol=1e-12)


def test_lemma_2_where_the_chain_has_one_factor_only():
    flat = dataclasses.replace(PLAIN, L_g=0.5, L_gyy=0.0)
    assert math.isfinite(lemma2(flat, 3))
    assert lemma2(dataclasses.replace(flat, L_gyy=1.0), 3) == math.inf


def test_lemma_1_bounds_what_the_quadratic_does():
    q = quad()
    L_f, L_y, L_l = lemma1(constants_of(q, 0.0))  # L_gxy = L_gyy = 0: C_fy does not matter
    random = np.random.default_rng(0)
    ratios = []
    for _ in range(50):
        x, other = random.normal(size=(2, 3))
        y, solved = random.normal(size=(4, 4)), q.lower_solution(x)
        norm = lambda a: np.linalg.norm(a, axis=1)
        ratios.append(norm(q.surrogate(x, y) - q.surrogate(x, solved)) / norm(y - solved) / L_f)
        moved, far = q.lower_solution(other), np.linalg.norm(other - x)
        ratios.append(norm(moved - solved) / far / L_y)
        ratios.append(norm(q.surrogate(other, moved) - q.surrogate(x, solved)) / far / L_l)
    assert 0.2 < np.max(ratios) <= 1


@pytest.mark.wide
def test_lemma_2_bounds_what_the_estimate_does_and_its_printed_form_does_not():
    init = lambda key: (jnp.zeros(2), jnp.zeros(1))
    rows = [np.random.default_rng(0).normal(size=(6, 1))]
    upper = lambda x, y, rows: 0.05 * x @ x + jnp.mean(rows @ y)  # L_fx = 0.1, L_fy = 0
    lower = lambda x, y, rows: jnp.mean((y[0] - rows[:, 0]) ** 2) / 2 + x[0] * y[0]
    with without_optimizations():
        problem = Problem(upper, lower, init, rows, rows)
        mine, sample = agent_of(problem.objectives(2), 0), sample_of(problem, 0, 3, 2)
        points = [(jnp.zeros(2), jnp.zeros(1)), (jnp.array([0.6, 0.8]), jnp.zeros(1))]
        (one, two), _ = neumann(3, 1.5)(mine, points, sample)
    known = dict(agents=1, lam=0.0, mu_g=1.0, L_g=1.5, C_gxy=1.0, C_fy=np.abs(rows[0]).max())
    L_K = lemma2(Constants(**known, L_fx=0.1, L_fy=0.0, L_gxy=0.0, L_gyy=0.0), 3)
    change = float(jnp.linalg.norm(two - one))  # over a distance of 1
    np.testing.assert_allclose(change, 0.1, rtol=1e-6)
    assert L_K**2 < change <= L_K


@pytest.mark.wide
@pytest.mark.parametrize("terms", [1, 4, 9])
def test_lemma_3_is_the_bias_where_y_is_one_number(terms):
    q = quad(agents=1, upper=1, lower=1, mu=0.5, L=0.5)
    x, y = np.array([0.7]), np.array([[-0.4]])
    f_y = y - q.a + q.D[:, 0] * x
    c = dataclasses.replace(constants_of(q, abs(float(f_y[0, 0]))), L_g=1.6)
    with without_optimizations():
        mine = agent_of(q.objectives(), 0)
        sample = sample_of(q, 0, terms).full()
        (result,), _ = neumann_sum(terms, 1.6)(mine, [(jnp.asarray(x), jnp.asarray(y[0]))], sample)
    off = abs(float(result[0]) - q.surrogate(x, y)[0, 0])
    np.testing.assert_allclose(bias(c, terms), off, rtol=1e-9)


@pytest.mark.wide
def test_lemma_3_bounds_the_bias_of_every_agent():
    q = quad()
    x, y = np.array([0.3, -0.2, 0.9]), np.ones((4, 4))
    f_y = y - q.a + np.einsum("ixy,x->iy", q.D, x)
    c = constants_of(q, np.linalg.norm(f_y, axis=1).max())
    mean = jax.jit(lambda problem, point, sample: neumann_sum(6, 1.5)(problem, [point], sample)[0])
    with without_optimizations():
        objectives = q.objectives()
        for agent, wanted in enumerate(q.surrogate(x, y)):
            sample = sample_of(q, agent, 6).full()
            point = jnp.asarray(x), jnp.asarray(y[agent])
            (result,) = mean(agent_of(objectives, agent), point, sample)
            assert 1e-4 < np.linalg.norm(result - wanted) <= bias(c, 6)


@pytest.mark.parametrize("rounds", [10, 1000, 10**6])
def test_the_terms_of_theorem_1_leave_a_bias_of_one_over_t(rounds):
    K = wanted_terms(PLAIN, rounds)
    assert bias(PLAIN, K) <= 1 / rounds
    assert K == math.ceil(4 * math.log(30 * rounds))
    with pytest.raises(ValueError, match="1 or more"):
        wanted_terms(PLAIN, 0)


def problems(count):
    """Constants over some orders of magnitude."""
    random = np.random.default_rng(0)
    for _ in range(count):
        mu, spread, C_gxy, C_fy, L_fx, L_fy, L_gxy, L_gyy = 10 ** random.uniform(-1, 1, 8)
        yield Constants(
            int(random.integers(1, 30)), random.uniform(0, 0.99), mu, mu * (1 + spread), C_gxy,
            C_fy, L_fx, L_fy, L_gxy, L_gyy,
        )  # fmt: skip


@pytest.mark.parametrize("fraction", [1.0, 0.01])
def test_the_potential_falls_at_the_steps_of_theorem_1(fraction):
    for c in problems(300):
        theorem = theorem1(c, 1000)
        drop = descent(c, theorem, fraction * theorem.alpha)
        assert max(drop.values()) <= 1e-12, (c, drop)
        alpha, beta = (theorem.schedules[name](0) for name in ("alpha", "beta"))
        assert alpha <= theorem.alpha * (1 + 1e-9) and beta <= theorem.beta * (1 + 1e-9)
        assert theorem.c_eta * alpha**2 <= 1 and theorem.c_gamma * alpha**2 <= 1


def test_the_printed_constants_do_not_make_it_fall():
    stiff = dataclasses.replace(PLAIN, lam=0.9)
    printed, sound = theorem1(stiff, 1000, printed=True), theorem1(stiff, 1000)
    assert printed.c_eta == math.inf
    with pytest.raises(ValueError, match="finite c_eta"):
        descent(stiff, printed, printed.alpha)
    ours = {name: getattr(sound, name) for name in ("c_eta", "cbar_u")}
    drop = descent(stiff, printed._replace(**ours), sound.alpha)
    assert drop["y"] > 0  # c_beta with L_f for L_f^2
    wide = sound._replace(alpha=sound.alpha / (1 - stiff.lam))  # (1 - lam)^2 for (1 - lam)^3
    assert descent(stiff, sound, wide.alpha)["u"] > 0


@pytest.mark.quick
def test_the_constants_of_theorem_1_by_hand():
    c = dataclasses.replace(
        PLAIN, agents=1, lam=0.0, mu_g=1.0, L_g=1.0, C_gxy=1.0, C_fy=1.0, L_fx=1.0, L_fy=0.0,
        L_gxy=0.0, L_gyy=0.0,
    )  # fmt: skip
    result = theorem1(c, 10)
    root = math.sqrt(10)
    assert result.terms == math.ceil(math.log(10))  # L_f = L_y = 1, L_l = L_K^2 = 2, L_mu = 1/2
    np.testing.assert_allclose(result[1:4:2], [math.sqrt(2), 2 * (2 * 15360 + 1 / 3)], rtol=1e-12)
    np.testing.assert_allclose(result.cbar_y, 1 / root)
    np.testing.assert_allclose(result.c_beta, 16 * root)
    np.testing.assert_allclose(result.cbar_eta, 24 * 2 * 2 * 160)  # of 64, 320 and this
    assert result.alpha == result.limits["tracking"] == result.cbar_u / 30
    np.testing.assert_allclose(result.cbar_u, 1 / (6 * result.cbar_eta))
    np.testing.assert_allclose(result.beta, 0.5)
    np.testing.assert_allclose(result.omega, result.alpha**-3)


@pytest.mark.quick
def test_the_limits_of_theorem_1_by_hand():
    """m = 3, lam = 1/2, mu = 1/2, L = 2, so mu L / (mu + L) = 2/5."""
    L_f, L_y, L_l = lemma1(PLAIN)
    result = _limits(PLAIN, L_K=2.0, c_beta=3.0, cbar_y=0.5, cbar_u=0.25, weight=16.0, power=3)
    expected = {
        "sqrt(m / 2) / L_l": math.sqrt(1.5) / L_l,
        "tracking": 0.25 / 8 / 30,
        "y*": 0.25 * 0.5 * 0.4 * 3 / (20 * L_y**2),
        "e^f": 0.025,
        "e^g": 0.025,
        "1 / (5 L_l)": 0.2 / L_l,
        "1 / (3 L_f)": 1 / L_f / 3,
        "(1 - lam) / (sqrt(120) L_K)": 0.25 / math.sqrt(120),
        "ubar": 0.5 / 720,
        "g_y": 0.5 * 0.5 / (36 * 2.5 * 0.25 * 4 * 3),
        "1 - lam": 0.5,
    }
    assert result == pytest.approx(expected, rel=1e-12)


@pytest.mark.quick
def test_the_right_side_by_hand():
    theorem = theorem1(PLAIN, 1000)._replace(
        cbar_y=0.1, cbar_u=0.2, cbar_eta=4.0, cbar_gamma=5.0, c_eta=1.5, c_gamma=2.5, omega=9.0
    )
    result = right_side(PLAIN, theorem, 999, best=0.5)
    last, log, scale = 1008 ** (1 / 3), math.log(1000), 4 * 1223.0**2 / 3
    assert scale > 1  # so it does not divide
    np.testing.assert_allclose(result.start, 2 * (1.5 + 0.3 + 0.2 * (5 + 3 * 0.09)) * last / 999)
    f = 3 * 0.09 * (2 * 2 / 4 + 4 * 2.25 / 4 * log + 6 * 0.2 * 2.25 * log)
    np.testing.assert_allclose(result.sigma_f, f * last / 999)
    g = 3 * 0.04 * (2 * 2 / 5 + 4 * 6.25 / 5 * log)
    np.testing.assert_allclose(result.sigma_g, g * last / 999)
    assert result.bias <= 4 / 1000**2 * last
    np.testing.assert_allclose(result.total, sum(result[:4]))


def test_the_right_side_falls_like_t_to_the_two_thirds_once_t_exceeds_omega():
    theorem = theorem1(PLAIN, 1000)
    early, late = (right_side(PLAIN, theorem, int(k * theorem.omega)) for k in (1e6, 8e6))
    np.testing.assert_allclose(early.start / late.start, 4, rtol=1e-5)


def test_theorem_1_says_where_it_says_nothing():
    for change in ({"lam": 1.0}, {"C_gxy": 0.0}, {"L_g": 0.5}):
        with pytest.raises(ValueError, match="does not apply"):
            theorem1(dataclasses.replace(PLAIN, **change), 10)
