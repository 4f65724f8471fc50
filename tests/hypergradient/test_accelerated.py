"""Accelerated chains: Chebyshev polynomials in closed form, the dense inverse, their mean."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import agent_of, quad, sample_of
from numpy.polynomial import chebyshev as polynomials

import diamond.hypergradient as hg
from diamond.core.sampling import Sample
from diamond.hypergradient.neumann import NeumannSum
from diamond.problem import Problem

pytestmark = pytest.mark.quick
ALL_ROWS = Sample(None, None, None, None, jnp.uint32(0))
BEND = np.array([0.5, 0.6, 0.9, 1.3, 1.5])
LARGE, SMALL = 1.8, 0.45


def first_kind(k, t):
    return polynomials.chebval(t, np.eye(k + 1)[k])


def second_kind(k, t):
    """U_k, by its recurrence."""
    before, now = np.zeros_like(t), np.ones_like(t)
    for _ in range(k):
        before, now = now, 2 * t * now - before
    return now


def left_out(kind, terms, bend=BEND, large=LARGE, small=SMALL):
    """1 - bend times what stands for 1 / bend: the polynomial that the chain leaves out."""
    if kind == "chebyshev":
        middle, half = (large + small) / 2, (large - small) / 2
        return first_kind(terms, (middle - bend) / half) / first_kind(terms, middle / half)
    root, remaining = (small / large) ** 0.5, 1 - bend / large
    c = (1 - root) / (1 + root)
    t = (1 + c) * np.sqrt(remaining / c) / 2
    rest = (np.sqrt(remaining / c) - t) * second_kind(terms - 1, t)
    return np.sqrt(c * remaining) ** terms * (first_kind(terms, t) + rest)


@pytest.fixture(scope="module")
def agent():
    """g = 1/2 sum bend y^2, of one agent with four rows."""
    rows = [{"s": np.tile(BEND, (4, 1))}]
    upper = lambda x, y, rows: jnp.sum(x) * jnp.sum(y) + 0 * jnp.mean(rows["s"])
    lower = lambda x, y, rows: 0.5 * jnp.sum(jnp.mean(rows["s"], 0) * y**2) + 0 * x[0] * y[0]
    start = lambda key: (jnp.zeros(1), jnp.zeros(5))
    return agent_of(Problem(upper, lower, start, rows, rows).objectives(1), 0)


@jax.jit
def solved(solve, agent, b):
    (z,), cost = solve(agent, [(jnp.zeros(1), jnp.zeros(5))], [b], ALL_ROWS)
    return z, cost


@pytest.mark.parametrize("kind", ["chebyshev", "nesterov"])
def test_what_it_leaves_out_is_the_polynomial_in_closed_form(kind, agent):
    make, b = getattr(hg, kind), np.array([1.0, -2.0, 0.5, 3.0, 1.0])
    for terms in (1, 7):
        z, cost = solved(make(terms, LARGE, SMALL).solve, agent, b)
        np.testing.assert_allclose(1 - BEND * z / b, left_out(kind, terms), rtol=1e-9, atol=1e-12)
        assert cost.hvps == (terms - 1) * 4
    dense = hg.exact().solve(agent, [(jnp.zeros(1), jnp.zeros(5))], [jnp.asarray(b)], ALL_ROWS)
    long_run, _ = solved(make(60, LARGE, SMALL).solve, agent, b)
    np.testing.assert_allclose(long_run, dense[0][0], rtol=1e-10)


def test_bounds_hold_over_the_whole_spectrum_and_beat_the_chain_of_as_many_terms():
    bend = np.linspace(0.01, 1.0, 500)
    for terms in (5, 20, 40):
        given = dict(bend=bend, large=1.0, small=0.01)
        best, accelerated = (
            np.abs(left_out(kind, terms, **given)).max() for kind in ("chebyshev", "nesterov")
        )
        assert best == pytest.approx(1 / first_kind(terms, 1.01 / 0.99))
        assert accelerated == pytest.approx((1 + 0.1 * terms) * 0.9**terms)  # at mu
        assert best < accelerated < 0.99**terms


@pytest.mark.wide
@pytest.mark.parametrize("kind", ["chebyshev", "nesterov"])
def test_on_sampled_rows_its_mean_is_that_of_all_rows(kind):
    """g_yy of the blocks differ; over all draws of two of them the mean is exact."""
    problem = quad(noise=0.0)
    scale = np.array([0.5, 1.5] * 6)
    rows = [{**part, "scale": scale} for part in problem.rows["train"]]
    lower = lambda x, y, r: jnp.mean(r["scale"]) * problem.lower(x, y, {k: r[k] for k in part})
    part = problem.rows["train"][0]
    sampled = type(problem)(problem.upper, lower, problem.init, rows, problem.rows["valid"])
    agent = agent_of(sampled.objectives(1), 0)
    x, y = problem.start(0)
    b = jnp.arange(1.0, 1 + y.size)
    solve, draw = getattr(hg, kind)(3, LARGE, SMALL).solve, sample_of(sampled, 0, 2)
    stored = np.asarray(agent.train.data["scale"])
    low, high = int(np.argmin(stored)), int(np.argmax(stored))

    def over(first, second):
        chain = jnp.array([first, second], draw.chain.dtype)
        return solve(agent, [(x, y)], [b], draw._replace(chain=chain))[0][0]

    mean = np.mean([over(i, j) for i in (low, high) for j in (low, high)], axis=0)
    whole = solve(agent, [(x, y)], [b], ALL_ROWS)[0][0]
    np.testing.assert_allclose(mean, whole, rtol=1e-9)
    assert np.abs(over(low, low) - whole).max() > 1e-2


def test_mu_is_what_the_terms_reach_where_none_is_given():
    assert hg.chebyshev(4, LARGE).solve.mu_or_default == pytest.approx(4 / 16 * LARGE)
    assert hg.nesterov(1, LARGE).solve.mu_or_default == LARGE
    sums = NeumannSum(LARGE, 4)
    assert hg.nesterov(4, LARGE, SMALL).hessian_batches == sums.hessian_batches


@pytest.mark.parametrize("kind", ["chebyshev", "nesterov"])
def test_a_file_says_which_of_the_two_it_is(kind):
    to_toml_value = pytest.importorskip("diamond.config.options").to_toml_value
    assert to_toml_value(getattr(hg, kind)(7, mu=0.5)) == {"name": kind, "terms": 7, "mu": 0.5}


def test_wrong_numbers_are_named():
    with pytest.raises(ValueError, match="terms = 0: the chain needs"):
        hg.nesterov(0)
    with pytest.raises(ValueError, match="mu = -1 must be positive"):
        hg.chebyshev(mu=-1)
    with pytest.raises(ValueError, match="mu = 3 is above lipschitz = 2"):
        hg.chebyshev(lipschitz=2, mu=3)
