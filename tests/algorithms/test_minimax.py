"""Saddle points with a strong pull between x and y: extrapolation damps the circles of gda."""

import jax.numpy as jnp
import numpy as np
import pytest
from helpers import progress_by_round, ring

import diamond

AGENTS, MU = 3, 0.1
RANDOM = np.random.default_rng(1)
D = 2 * np.eye(2) + 0.3 * RANDOM.normal(size=(AGENTS, 2, 2))
B = RANDOM.normal(size=(AGENTS, 2))


def payoff(x, y, rows):
    """MU/2 |x|^2 + y'(Dx + b) - MU/2 |y|^2, least in x and largest in y."""
    pull = jnp.mean((rows["D"] @ x + rows["b"]) @ y)
    return MU / 2 * jnp.sum(x**2) + pull - MU / 2 * jnp.sum(y**2)


@pytest.fixture(scope="module")
def saddle():
    rows = [{"D": d[None], "b": b[None]} for d, b in zip(D, B)]
    start = lambda key: (jnp.ones(2), jnp.zeros(2))
    return diamond.Problem(payoff, lambda x, y, rows: -payoff(x, y, rows), start, rows, rows)


def distances(problem, method, rounds=400):
    """How far x is from the saddle point in each round; y_i* = (D_i x + b_i) / MU."""
    slope = MU * np.eye(2) + np.einsum("iyx,iyw->xw", D, D) / AGENTS / MU
    best = np.linalg.solve(slope, -np.einsum("iyx,iy->x", D, B) / AGENTS / MU)
    progress = progress_by_round(problem, ring(AGENTS), method, rounds)
    return [np.abs(np.asarray(p.state.x) - best).max() for p in progress]


def test_extrapolation_ends_at_the_saddle_where_gda_leaves_it(saddle):
    steps = dict(alpha=0.2, beta=0.2, batch=1)
    circling = distances(saddle, diamond.gda(**steps), 60)
    damped = distances(saddle, diamond.optimistic_gda(**steps))
    assert circling[-1] > 3 * circling[0] and damped[-1] < 1e-4 * damped[0]


def test_the_extrapolated_direction_is_twice_the_new_less_the_old(saddle):
    """By hand, of y, which is each agent's own."""
    method = diamond.optimistic_gda(alpha=0.2, beta=0.2, batch=1)
    states = [p.state for p in progress_by_round(saddle, ring(AGENTS), method, 4)]
    slopes = [MU * s.y - np.einsum("iyx,ix->iy", D, s.x) - B for s in states]
    np.testing.assert_allclose(states[1].y, 0 * B - 0.2 * slopes[0], atol=1e-12)
    for t in (1, 2, 3):
        expected = np.asarray(states[t].y) - 0.2 * (2 * slopes[t] - slopes[t - 1])
        np.testing.assert_allclose(states[t + 1].y, expected, atol=1e-12)
