"""Methods written again from their docstrings alone, agent by agent."""

import jax
import numpy as np
import pytest
from helpers import agent_of, final_progress, quad, ring, sample_of

import diamond

AGENTS, ROUNDS, BATCH = 4, 5, 3
pytestmark = pytest.mark.wide


def oracles(problem, agent, t, cross="cross"):
    """f_x, f_y, g_y, g_xy and g_yy of an agent on the rows that it draws in round t."""
    own, sample = agent_of(problem.objectives(BATCH), agent), sample_of(problem, agent, 0, BATCH, t)
    f = lambda x, y: own.f(x, y, sample.upper)
    g = lambda x, y: own.g(x, y, sample.lower)
    g_mixed = lambda x, y: own.g(x, y, getattr(sample, cross))
    return (
        jax.grad(f, 0), jax.grad(f, 1), jax.grad(g, 1),
        jax.jacobian(jax.grad(g_mixed, 0), 1), jax.hessian(g_mixed, 1),
    )  # fmt: skip


@pytest.mark.parametrize("rule", ["gt", "gossip"])
def test_lopa(rule):
    """r averages f_x - g_xy z with theta; y moves along g_y, z along g_yy z - f_y."""
    problem, network = quad(noise=0.5), ring(AGENTS)
    alpha, beta, delta, theta = 0.05, 0.2, 0.15, 0.3
    method = diamond.lopa(alpha, beta, delta, theta, rule, batch=BATCH, order="atc")
    state = final_progress(problem, network, method, ROUNDS).state
    x0, y0 = map(np.asarray, problem.start(0))
    x, y, z = (np.tile(a, (AGENTS, 1)) for a in (x0, y0, 0 * y0))
    r, u = np.zeros_like(x), np.zeros_like(x)
    for t in range(ROUNDS):
        weight = theta if t else 1.0
        new_r, new_y, new_z = r.copy(), y.copy(), z.copy()
        for i in range(AGENTS):
            f_x, f_y, g_y, g_xy, g_yy = oracles(problem, i, t)
            point = x[i], y[i]
            new_r[i] = (1 - weight) * r[i] + weight * (f_x(*point) - g_xy(*point) @ z[i])
            new_y[i] = y[i] - beta * g_y(*point)
            new_z[i] = z[i] - delta * (g_yy(*point) @ z[i] - f_y(*point))
        tracked = network.matrix @ u + new_r - r
        u = tracked if rule == "gt" else new_r
        x, y, z, r = network.matrix @ (x - alpha * u), new_y, new_z, new_r
    for found, expected in ((state.x, x), (state.y, y), (state.z, z)):
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


def test_gossip_dsbo():
    """q <- (1 - theta) M q + theta q(fresh); x and y are mixed, and move along these averages."""
    problem, network = quad(noise=0.5, lower_level="common"), ring(AGENTS)
    alpha, beta, theta = 0.05, 0.2, 0.3
    method = diamond.gossip_dsbo(alpha, beta, theta, BATCH)
    state = final_progress(problem, network, method, ROUNDS).state
    x0, y0 = map(np.asarray, problem.start(0))
    x, y = np.tile(x0, (AGENTS, 1)), np.tile(y0, (AGENTS, 1))
    q = None
    for t in range(ROUNDS):
        fresh = [
            [np.asarray(oracle(x[i], y[i])) for oracle in oracles(problem, i, t)]
            for i in range(AGENTS)
        ]
        fresh = [np.stack(values) for values in zip(*fresh)]
        mix = lambda a: np.einsum("ij,j...->i...", network.matrix, a)
        weight = theta if t else 1.0
        q = [n if q is None else (1 - weight) * mix(q[k]) + weight * n for k, n in enumerate(fresh)]
        f_x, f_y, g_y, g_xy, g_yy = q
        h = [f_x[i] - g_xy[i] @ np.linalg.solve(g_yy[i], f_y[i]) for i in range(AGENTS)]
        x, y = mix(x) - alpha * np.stack(h), mix(y) - beta * g_y
    for found, expected in ((state.x, x), (state.y, y)):
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)
