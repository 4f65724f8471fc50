"""DIAMOND without its chain: the formulas by hand, and where they lead."""

import jax
import numpy as np
import pytest
from fast_compilation import skip_measures
from helpers import agent_of, final_progress, logistic, quad, ring, sample_of

import diamond
from diamond import hypergradient as hg

ONE = diamond.network.path(1)


@pytest.mark.wide
def test_one_agent_is_the_loop_written_by_hand():
    problem, batch, rounds = logistic(agents=1), 3, 6
    alpha, beta, delta, eta, gamma = 0.3, 0.2, 0.15, 0.4, 0.6
    algorithm = diamond.k_free(alpha, beta, eta, gamma, delta, batch)
    add = lambda a, c, b: jax.tree.map(lambda a, b: a + c * b, a, b)
    own = agent_of(problem.objectives(batch), 0)

    @jax.jit
    def directions(x, y, z, sample):
        f_x, f_y = jax.grad(own.f, (0, 1))(x, y, sample.upper)
        dot = lambda a, b: sum(map(lambda a, b: (a * b).sum(), *map(jax.tree.leaves, (a, b))))
        inner = lambda x, y: dot(jax.grad(own.g, 1)(x, y, sample.cross), z)
        g_xy, g_yy = jax.grad(inner, (0, 1))(x, y)
        return add(f_x, -1, g_xy), jax.grad(own.g, 1)(x, y, sample.lower), add(g_yy, -1, f_y)

    x, y = problem.start(0)
    z = jax.tree.map(np.zeros_like, y)
    p = v = w = last = None
    for t in range(rounds):
        sample = sample_of(problem, 0, 0, batch, t)
        new = directions(x, y, z, sample)
        if t == 0:
            p, v, w = new
        else:
            back = directions(*last, sample)
            p = add(new[0], 1 - eta, add(p, -1, back[0]))
            v = add(new[1], 1 - gamma, add(v, -1, back[1]))
            w = add(new[2], 1 - gamma, add(w, -1, back[2]))
        last = x, y, z
        x, y, z = add(x, -alpha, p), add(y, -beta, v), add(z, -delta, w)
    state = final_progress(problem, ONE, algorithm, rounds).state
    for result, expected in ((state.x, x), (state.y, y), (state.z, z)):
        for a, b in zip(jax.tree.leaves(result), jax.tree.leaves(expected)):
            np.testing.assert_allclose(a[0], b, rtol=1e-12, atol=1e-13)


@pytest.mark.wide
def test_z_becomes_the_solution_and_x_the_minimizer():
    q = quad(noise=0.0)
    state = final_progress(q, ring(4), diamond.k_free(0.1, 0.5, 0.5, 0.5, batch=3), 1500).state
    best = q.minimizer()
    np.testing.assert_allclose(state.x, np.tile(best, (4, 1)), atol=1e-9)
    y = q.lower_solution(best)
    f_y = y - q.a + np.einsum("ixy,x->iy", q.D, best)
    np.testing.assert_allclose(state.z, np.linalg.solve(q.A, f_y[..., None])[..., 0], atol=1e-8)


@pytest.mark.wide
def test_it_costs_three_batches_a_round_whatever_the_conditioning(monkeypatch):
    skip_measures(monkeypatch)
    q = quad(noise=0.5)
    run = diamond.simulate(q, ring(4), diamond.k_free(0.05, 0.2, 0.3, 0.3, batch=4), 10, every=10)
    assert run.costs["samples"].tolist() == [10 * 3 * 4] * 4
    chain = diamond.diamond(0.05, 0.2, 0.3, 0.3, 4, hypergradient=hg.neumann_sum(10, 1.6))
    other = diamond.simulate(q, ring(4), chain, 10, every=10)
    assert other.costs["samples"].tolist() == [10 * 12 * 4] * 4
