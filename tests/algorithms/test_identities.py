"""Algorithms that are the same algorithm, and what holds in every round of each."""

from dataclasses import replace
from functools import cache
from itertools import pairwise

import jax.numpy as jnp
import networkx as nx
import numpy as np
import pytest
from helpers import (
    ALGORITHMS,
    ESTIMATORS,
    LOWER,
    TRACKED,
    build,
    final_progress,
    flat,
    logistic,
    progress_by_round,
    quad,
    ring,
    same_bits,
    sample_of,
)

import diamond
from diamond import hypergradient
from diamond.algorithms.parts.communication import gossip
from diamond.core.sampling import key
from diamond.engine.round_program import run_rounds
from diamond.network import from_graph
from diamond.network.mixing.mixer import mixer
from diamond.problem import Problem
from diamond.schedules.deferred import ResolutionContext, resolve

ALPHA, BETA, ETA, GAMMA, BATCH, ROUNDS = 0.05, 0.2, 0.3, 0.6, 3, 8
STEPS = dict(alpha=ALPHA, beta=BETA, eta=ETA, gamma=GAMMA, batch=BATCH, period=3)


@cache
def trace(name, network="ring"):
    """Every round of a noisy run."""
    networks = {
        "ring": ring(4),
        "path": diamond.network.path(4, "metropolis"),
        "average": from_graph(nx.complete_graph(4), np.full((4, 4), 0.25)),
    }
    algorithm = build(name, hypergradient=ESTIMATORS["neumann_sum"], **STEPS)
    stepped = progress_by_round(quad(), networks[network], algorithm, ROUNDS)
    at_once = final_progress(quad(), networks[network], algorithm, ROUNDS)
    assert same_bits(stepped[-1], at_once)  # state and counters; also tested by name below
    return [s.state for s in stepped]


@pytest.mark.wide
@pytest.mark.parametrize("name", ALGORITHMS)
def test_rounds_one_by_one_are_the_rounds_at_once(name):
    assert len(trace(name)) == ROUNDS + 1


def spread(a):
    return np.sum((np.asarray(a) - np.mean(a, 0)) ** 2)


@pytest.mark.parametrize("network", ["ring", "path"])
@pytest.mark.parametrize("name", TRACKED)
def test_the_mean_is_tracked_and_moves_along_itself(name, network):
    states = trace(name, network)
    for now, after in pairwise(states):
        np.testing.assert_allclose(np.mean(after.u, 0), np.mean(after.p, 0), atol=1e-12)
        moved = np.mean(now.x, 0) - ALPHA * np.mean(after.u, 0)
        np.testing.assert_allclose(np.mean(after.x, 0), moved, atol=1e-13)
    assert spread(after.u) > 1e-3 and spread(after.x) > 1e-5  # not because all agents agree


def test_without_tracking_the_mean_moves_along_the_mean_estimate():
    states = trace("m_sgd")
    for now, after in pairwise(states):
        moved = np.mean(now.x, 0) - ALPHA * np.mean(after.p, 0)
        np.testing.assert_allclose(np.mean(after.x, 0), moved, atol=1e-13)


@pytest.mark.wide
@pytest.mark.parametrize("network", ["ring", "path"])
@pytest.mark.parametrize("name", TRACKED)
def test_lemma_8(name, network):
    lam = {"ring": ring(4), "path": diamond.network.path(4, "metropolis")}[network].lam
    states = trace(name, network)
    for now, after in pairwise(states):  # now: x_t, u_{t-1}, p_{t-1}; after: x_{t+1}, u_t
        change = np.sum((np.asarray(after.p) - now.p) ** 2)
        for c in (0.1, (1 - lam**2) / (2 * lam**2), 1.0, 10.0):
            left = (1 + c) * lam**2 * spread(now.x) + (1 + 1 / c) * ALPHA**2 * spread(after.u)
            assert spread(after.x) <= left * (1 + 1e-12)
            left = (1 + c) * lam**2 * spread(now.u) + (1 + 1 / c) * change
            assert spread(after.u) <= left * (1 + 1e-12)
        step = np.sum((np.asarray(after.x) - now.x) ** 2)
        mean = 4 * np.sum(np.mean(after.u, 0) ** 2)
        left = 8 * spread(now.x) + 4 * ALPHA**2 * (spread(after.u) + mean)
        assert step <= left * (1 + 1e-12)


@pytest.mark.parametrize("name", TRACKED)
def test_full_averaging_leaves_only_the_last_change(name):
    """M = 11'/m: x_i - xbar = -alpha (u_i - ubar), u_i = ubar_{t-1} + p_i - p_{i,t-1}."""
    states = trace(name, "average")
    for now, after in pairwise(states):
        u = np.mean(now.u, 0) + after.p - now.p
        np.testing.assert_allclose(after.u, u, atol=1e-13)
        x = np.mean(now.x, 0) - ALPHA * np.asarray(after.u)
        np.testing.assert_allclose(after.x, x, atol=1e-13)
    assert spread(after.x) > 0


def by_hand(q, M, rounds, K=5, L=1.6):
    """DIAMOND in numpy, for all agents: eqs. (5) to (10), on the samples that the library draws."""
    m = len(M)
    x, y = np.zeros((m, 3)), np.zeros((m, LOWER))
    p, v, u = np.zeros_like(x), np.zeros_like(y), np.zeros_like(x)
    last = x, y

    def gradients(i, x, y, s):
        rows = {part: q.rows[part][i]["point"] for part in ("train", "valid")}
        block = lambda part, first: rows[part][(int(first) + np.arange(BATCH)) % len(rows[part])]
        w = y - block("valid", s.upper).mean(0) + q.D[i].T @ x  # f_y
        for _ in range(int(s.bits) % K):
            w = w - q.A[i] @ w / L
        h = q.P[i] @ x + q.c[i] + q.D[i] @ y + q.B[i].T @ (K / L * w)
        return h, q.A[i] @ y - q.B[i] @ x - block("train", s.lower).mean(0)

    for t in range(rounds):
        eta, gamma = (1, 1) if t == 0 else (ETA, GAMMA)
        new_p, new_v = np.empty_like(p), np.empty_like(v)
        for i in range(m):
            s = sample_of(q, i, K, BATCH, t, seed=7)
            (h, g), (h_old, g_old) = (gradients(i, a[i], b[i], s) for a, b in ((x, y), last))
            new_p[i] = h + (1 - eta) * (p[i] - h_old)
            new_v[i] = g + (1 - gamma) * (v[i] - g_old)
        u = M @ u + new_p - p
        p, v, last = new_p, new_v, (x, y)
        x, y = M @ x - ALPHA * u, y - BETA * v
    return x, y, u


@pytest.mark.wide
@pytest.mark.parametrize("agents", [1, 4])
def test_diamond_is_the_loop_written_by_hand(agents):
    q = quad(agents=agents)
    network = diamond.network.path(agents)
    algorithm = build("diamond", hypergradient=ESTIMATORS["neumann"], **STEPS)
    result = final_progress(q, network, algorithm, ROUNDS, seed=7).state
    x, y, u = by_hand(q, network.matrix, ROUNDS)
    np.testing.assert_allclose(result.x, x, rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(result.y, y, rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(result.u, u, rtol=1e-12, atol=1e-12)


def test_m_sgd_is_diamond_without_tracking():
    options = dict(hypergradient=ESTIMATORS["neumann"], **STEPS)
    tracked = build("diamond", **options)
    alone = replace(tracked.x, communication=gossip("paper"))
    assert build("m_sgd", **options) == replace(tracked, x=alone)


@pytest.mark.wide
def test_on_one_agent_m_sgd_is_diamond():
    q, alone = quad(agents=1), diamond.network.path(1)
    options = dict(hypergradient=ESTIMATORS["neumann"], **STEPS)
    one, two = (
        final_progress(q, alone, build(name, **options), ROUNDS) for name in ("m_sgd", "diamond")
    )
    np.testing.assert_allclose(one.state.x, two.state.x, rtol=1e-12)
    np.testing.assert_allclose(one.state.y, two.state.y, rtol=1e-12)


def test_gt_sgd_is_diamond_with_all_weight_on_the_present():
    algorithm = diamond.diamond(ALPHA, BETA, 1.0, 1.0, BATCH, ESTIMATORS["neumann_sum"])
    result = final_progress(quad(), ring(4), algorithm, ROUNDS).state
    expected = trace("gt_sgd")[-1]
    assert same_bits(
        (result.x, result.y, result.p, result.u), (expected.x, expected.y, expected.p, expected.u)
    )


def test_dsgd_is_m_sgd_with_all_weight_on_the_present():
    algorithm = diamond.m_sgd(ALPHA, BETA, 1.0, 1.0, BATCH, ESTIMATORS["neumann_sum"])
    result = final_progress(quad(), ring(4), algorithm, ROUNDS).state
    assert same_bits((result.x, result.y), trace("dsgd")[-1][:2])


def test_svr_interact_with_period_1_is_interact():
    options = STEPS | {"period": 1, "hypergradient": ESTIMATORS["neumann_sum"]}
    result = final_progress(quad(), ring(4), build("svr_interact", **options), ROUNDS).state
    expected = trace("interact")[-1]
    for name in ("x", "y", "p", "u"):
        np.testing.assert_allclose(
            getattr(result, name), getattr(expected, name), rtol=1e-12, atol=1e-13
        )


@pytest.mark.quick
def test_prometheus_without_a_prox_is_svr_interact_that_mixes_after_the_step():
    given = dict(alpha=ALPHA, beta=BETA, batch=BATCH, period=3)
    whole = diamond.prometheus(**given)
    assert whole == diamond.svr_interact(**given, order="atc")  # hence in every bit
    assert whole != diamond.svr_interact(**given)  # in the order of the paper
    assert diamond.prometheus() == diamond.svr_interact()  # steps that choose themselves: "atc"


@pytest.mark.wide
def test_between_resets_svr_interact_is_diamond_without_weight_on_the_present():
    """On a curved problem: on the quadratic, sampled differences are exact and resets idle."""
    problem, network = logistic(), ring(3)
    options = STEPS | {"period": 100, "hypergradient": hypergradient.neumann_sum(3, 3.0)}
    spider = progress_by_round(problem, network, build("svr_interact", **options), ROUNDS)
    momentum = build("diamond", **options | {"eta": 0.0, "gamma": 0.0})
    momentum = resolve(momentum, ResolutionContext(problem, None, BATCH, 0)).algorithm
    fixed = momentum, problem.objectives(BATCH), mixer(network), key(0)
    result, _ = run_rounds(*fixed, spider[1], jnp.int32(ROUNDS), sampling="blocks")
    for name in ("x", "y", "p", "v", "u"):
        one, two = flat(getattr(result.state, name)), flat(getattr(spider[-1].state, name))
        np.testing.assert_allclose(one, two, rtol=1e-11, atol=1e-12)
    resets = build("svr_interact", **options | {"period": 3})
    other = final_progress(problem, network, resets, ROUNDS).state
    assert np.abs(flat(other.x) - flat(spider[-1].state.x)).max() > 1e-5


@pytest.mark.wide
def test_interact_is_diamond_on_full_batches_with_all_weight_on_the_present():
    algorithm = diamond.diamond(ALPHA, BETA, 1.0, 1.0, 12, ESTIMATORS["exact"])
    result = final_progress(quad(), ring(4), algorithm, ROUNDS).state
    full = diamond.interact(ALPHA, BETA, hypergradient=ESTIMATORS["exact"])
    expected = final_progress(quad(), ring(4), full, ROUNDS).state
    for name in ("x", "y", "u"):
        np.testing.assert_allclose(getattr(result, name), getattr(expected, name), atol=1e-11)


def test_renaming_the_agents_renames_the_result():
    q, order = quad(), [2, 0, 3, 1]
    rows = {part: [q.rows[part][i] for i in order] for part in ("train", "valid")}
    moved = Problem(q.upper, q.lower, q.init, **rows, shuffle=False)
    graph = nx.Graph([(0, 1), (1, 2), (2, 3), (1, 3)])
    place = {agent: new for new, agent in enumerate(order)}
    renamed = nx.Graph()
    renamed.add_nodes_from(range(4))
    renamed.add_edges_from((place[a], place[b]) for a, b in graph.edges)
    algorithm = build("interact", hypergradient=ESTIMATORS["neumann_sum"], **STEPS)
    one = final_progress(q, from_graph(graph, "metropolis"), algorithm, ROUNDS).state
    two = final_progress(moved, from_graph(renamed, "metropolis"), algorithm, ROUNDS).state
    for name in ("x", "y", "p", "u"):
        a, b = np.asarray(getattr(one, name)), np.asarray(getattr(two, name))
        np.testing.assert_allclose(a[order], b, rtol=1e-12, atol=1e-13)
        assert np.abs(a - b).max() > 1e-4
