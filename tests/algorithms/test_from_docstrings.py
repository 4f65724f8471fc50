"""Methods written again from their docstrings alone, agent by agent."""

import jax
import numpy as np
import pytest
from helpers import agent_of, final_progress, quad, ring, sample_of

import diamond
from diamond.core.sampling import draw, key

AGENTS, ROUNDS, BATCH = 4, 5, 3
pytestmark = pytest.mark.wide


def oracles(problem, agent, t, cross="cross"):
    """f_x, f_y, g_y, g_xy and g_yy of an agent on the rows that it draws in round t."""
    return oracles_on(problem, agent, sample_of(problem, agent, 0, BATCH, t), cross)


def oracles_on(problem, agent, sample, cross="cross"):
    own = agent_of(problem.objectives(BATCH), agent)
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


def started(problem):
    """x, y and zeros like y of all agents."""
    x0, y0 = map(np.asarray, problem.start(0))
    return [np.tile(a, (AGENTS, 1)) for a in (x0, y0, 0 * y0)]


def check(state, *expected):
    for name, value in zip("xyz", expected):
        np.testing.assert_allclose(getattr(state, name), value, rtol=1e-12, atol=1e-12)


def soba_directions(problem, i, t, x, y, z):
    return soba_on(problem, i, sample_of(problem, i, 0, BATCH, t), x, y, z)


def soba_on(problem, i, sample, x, y, z):
    """f_x - g_xy z, g_y, g_yy z - f_y."""
    f_x, f_y, g_y, g_xy, g_yy = oracles_on(problem, i, sample)
    return f_x(x, y) - g_xy(x, y) @ z, g_y(x, y), g_yy(x, y) @ z - f_y(x, y)


def in_stages(problem, i, t, stages):
    """The samples of agent i in a round of `stages` exchanges, one after another."""
    rows = tuple(int(problem.counts(part)[i]) for part in ("train", "valid"))
    return [draw(key(0), t, i, rows, 0, BATCH, "blocks", turn) for turn in range(stages)]


def test_fsla():
    """y, then z at the new y, then x along momentum at the new y and z, each on its own sample."""
    problem, network = quad(noise=0.5), ring(AGENTS)
    alpha, beta, delta, eta = 0.05, 0.2, 0.15, 0.3
    method = diamond.fsla(alpha, beta, delta, eta, BATCH)
    state = final_progress(problem, network, method, ROUNDS).state
    x, y, z = started(problem)
    p, last = np.zeros_like(x), None
    for t in range(ROUNDS):
        samples = [in_stages(problem, i, t, 3) for i in range(AGENTS)]
        at = lambda i, stage, *v, s=samples: soba_on(problem, i, s[i][stage], *v)
        y = np.stack([y[i] - beta * at(i, 0, x[i], y[i], z[i])[1] for i in range(AGENTS)])
        z = np.stack([z[i] - delta * at(i, 1, x[i], y[i], z[i])[2] for i in range(AGENTS)])
        now, weight = (x, y, z), eta if t else 1.0
        before = last or now
        new = [at(i, 2, *(a[i] for a in now))[0] for i in range(AGENTS)]
        old = [at(i, 2, *(a[i] for a in before))[0] for i in range(AGENTS)]
        p = np.stack(new) + (1 - weight) * (p - np.stack(old))
        x, last = network.matrix @ (x - alpha * p), now
    check(state, x, y, z)


def test_br_fedbi():
    """All three along averages, and mixed after the step."""
    problem, network = quad(noise=0.5, lower_level="common"), ring(AGENTS)
    steps, theta = (0.05, 0.2, 0.15), 0.3
    method = diamond.br_fedbi(*steps, theta, BATCH)
    state = final_progress(problem, network, method, ROUNDS).state
    point, averages = started(problem), [0.0, 0.0, 0.0]
    for t in range(ROUNDS):
        fresh = [soba_directions(problem, i, t, *(a[i] for a in point)) for i in range(AGENTS)]
        fresh = [np.stack(values) for values in zip(*fresh)]
        weight = theta if t else 1.0
        averages = [(1 - weight) * a + weight * d for a, d in zip(averages, fresh)]
        point = [network.matrix @ (s - a * d) for s, a, d in zip(point, steps, averages)]
    check(state, *point)


@pytest.mark.parametrize("rule", ["gt", "gossip"])
def test_sun_dsbo(rule):
    """The directions of the minimax problem, each tracked or averaged."""
    problem, network = quad(noise=0.5, lower_level="common"), ring(AGENTS)
    steps, c, gamma = (0.01, 0.2, 0.15), 7.0, 0.8
    method = diamond.sun_dsbo(
        *steps, c=c, gamma=gamma, communication=rule, batch=BATCH, order="atc"
    )
    state = final_progress(problem, network, method, ROUNDS).state
    x, y, _ = started(problem)
    point, trackers, last = [x, y, y], [0.0, 0.0, 0.0], [0.0, 0.0, 0.0]
    for t in range(ROUNDS):
        fresh = []
        for i in range(AGENTS):
            own, sample = agent_of(problem.objectives(BATCH), i), sample_of(problem, i, 0, BATCH, t)
            x, y, z = (a[i] for a in point)
            f_x, f_y = jax.grad(own.f, (0, 1))(x, y, sample.upper)
            (y_x, y_y), (z_x, z_y) = (jax.grad(own.g, (0, 1))(x, a, sample.lower) for a in (y, z))
            pull = (y - z) / gamma
            fresh.append((f_x + c * (y_x - z_x), f_y / c + y_y - pull, z_y - pull))
        fresh = [np.stack(values) for values in zip(*fresh)]
        along = (
            [network.matrix @ u + d - o for u, d, o in zip(trackers, fresh, last)]
            if (t and rule == "gt")
            else fresh
        )
        point = [network.matrix @ (s - a * u) for s, a, u in zip(point, steps, along)]
        trackers, last = along, fresh
    check(state, *point)


@pytest.mark.parametrize("name", ["srba", "s3ldbo"])
def test_directions_that_are_kept_between_rounds(name):
    """SRBA adds differences to those on all rows; S3LDBO keeps them, and tracks."""
    level = "personal" if name == "srba" else "common"
    problem, network = quad(noise=0.5, lower_level=level), ring(AGENTS)
    steps, period, probability = (0.05, 0.2, 0.15), 3, 0.5
    options = {"period": period} if name == "srba" else {"probability": probability}
    method = getattr(diamond, name)(*steps, batch=BATCH, **options)
    state = final_progress(problem, network, method, ROUNDS).state
    point, last = started(problem), None
    earlier, trackers, renewed = [0.0, 0.0, 0.0], [0.0, 0.0, 0.0], 0
    every = lambda sample: sample.full()
    for t in range(ROUNDS):
        samples = [sample_of(problem, i, 0, BATCH, t) for i in range(AGENTS)]

        def at(point, of=lambda sample: sample, samples=samples):
            values = [
                soba_on(problem, i, of(samples[i]), *(a[i] for a in point)) for i in range(AGENTS)
            ]
            return [np.stack(value) for value in zip(*values)]

        if name == "srba":
            new = (
                at(point, every)
                if t % period == 0
                else [k + n - o for k, n, o in zip(earlier, at(point), at(last))]
            )
        else:
            drawn = t == 0 or int(samples[0].bits) < probability * 2**32
            new, renewed = at(point, every) if drawn else earlier, renewed + drawn
        last, trackers = (
            point,
            [(network.matrix @ u if t else 0) + n - k for u, n, k in zip(trackers, new, earlier)],
        )
        along, earlier = new if name == "srba" else trackers, new
        mix = [network.matrix if name == "s3ldbo" or k == 0 else np.eye(AGENTS) for k in range(3)]
        point = [M @ (s - a * d) for M, s, a, d in zip(mix, point, steps, along)]
    check(state, *point)
    assert name == "srba" or 1 < renewed < ROUNDS


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
