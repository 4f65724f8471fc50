"""Agents that join and leave in a simulation, compared with a run written out in numpy."""

import jax.numpy as jnp
import numpy as np
import pytest
from helpers import quad
from lockstep_agents import build_algorithm

import diamond
from diamond.network import changing, path, ring
from diamond.problem import Problem

# Agent 4 joins in round 6, agent 1 leaves in round 11, agent 5 joins and 0 leaves in round 15.
MEMBERS = {0: [0, 1, 2, 3], 6: [0, 1, 2, 3, 4], 11: [0, 2, 3, 4], 15: [2, 3, 4, 5]}
NETWORKS = {0: ring(4), 6: ring(5), 11: path(4), 15: ring(4)}
CHANGES = changing(NETWORKS, members=MEMBERS)
ROUNDS, ALPHA = 20, 0.05


def least_squares(agents=6, rows=7):
    random = np.random.default_rng(0)
    data = [
        {"a": random.normal(size=(rows + i, 3)), "b": random.normal(size=rows + i)}
        for i in range(agents)
    ]
    loss = lambda x, part: 0.5 * jnp.mean((part["a"] @ x - part["b"]) ** 2)
    return Problem(loss, None, lambda key: jnp.ones(3), data), data


def written_out(data, rule, rounds=ROUNDS):
    """The run of all agents in numpy: x, u and p of each; and sum u - sum p after every round."""
    x, u, p, gaps = np.ones((len(data), 3)), *np.zeros((2, len(data), 3)), []
    gradient = lambda i: data[i]["a"].T @ (data[i]["a"] @ x[i] - data[i]["b"]) / len(data[i]["b"])
    before = MEMBERS[0]
    for t in range(rounds):
        if t in MEMBERS and t:
            network, members = NETWORKS[t], MEMBERS[t]
            stays = [i for i in members if i in before]
            u[stays] = p[stays]
            for i in set(members) - set(before):
                row = network.matrix[members.index(i)]
                sources = [j for j, weight in zip(members, row) if weight and j in before]
                x[i], u[i], p[i] = x[sources].mean(0), 0, 0
            gaps.append(np.abs((u[members] - p[members]).sum(0)).max())
        members = MEMBERS[max(r for r in MEMBERS if r <= t)]
        matrix = NETWORKS[max(r for r in MEMBERS if r <= t)].matrix
        d = np.array([gradient(i) for i in members])
        if rule == "gossip":
            x[members] = matrix @ (x[members] - ALPHA * d)
        else:
            u[members] = matrix @ u[members] + d - p[members]
            x[members] = matrix @ x[members] - ALPHA * u[members]
            p[members] = d
        gaps.append(np.abs((u[members] - p[members]).sum(0)).max())
        before = members
    return x, u, p, gaps


@pytest.mark.wide
def test_tracking_equals_the_run_written_out():
    problem, data = least_squares()
    x, u, p, gaps = written_out(data, "tracking")
    assert max(gaps) < 1e-12
    algorithm = diamond.interact(alpha=ALPHA, order="paper")
    run = diamond.simulate(problem, CHANGES, algorithm, ROUNDS, every=4, measure="cheap")
    for name, wanted in {"x": x, "u": u, "p": p}.items():
        np.testing.assert_allclose(getattr(run.state, name), wanted, rtol=0, atol=1e-12)
    assert run.history["round"].tolist() == [0, 4, 6, 8, 11, 12, 15, 16, 20]
    local = run.per_agent["local_loss"]
    assert np.isnan(local[1]).tolist() == [False] * 4 + [True] * 2
    assert np.isnan(local[-1]).tolist() == [True] * 2 + [False] * 4
    losses = [0.5 * np.mean((d["a"] @ x[i] - d["b"]) ** 2) for i, d in enumerate(data)]
    np.testing.assert_allclose(local[-1][2:], losses[2:], rtol=1e-12)


@pytest.mark.wide
def test_gossip_equals_the_run_written_out():
    problem, data = least_squares()
    x, *_ = written_out(data, "gossip")
    algorithm = diamond.compose("gradient", "full", "gossip", alpha=ALPHA, lower_level="none")
    run = diamond.simulate(problem, CHANGES, algorithm, ROUNDS, measure="cheap")
    np.testing.assert_allclose(run.last_x, x, rtol=0, atol=1e-12)


@pytest.mark.wide
def test_costs_go_on():
    problem, data = least_squares()
    interact = diamond.interact(alpha=ALPHA)
    run = diamond.simulate(problem, CHANGES, interact, ROUNDS, every=5, measure="cheap")
    present = [
        sum(i in MEMBERS[max(r for r in MEMBERS if r <= t)] for t in range(20)) for i in range(6)
    ]
    rows = np.array([len(part["b"]) for part in data])
    np.testing.assert_array_equal(run.costs["gradients"], present * rows)
    messages = 2 * (6 * 4 + 5 * 5 + 4 * 3 + 5 * 4)
    assert run.messages == messages
    joins = 2 * 3 * 8 + 2 * 3 * 8  # x of two neighbours that stay, for each of the two that join
    assert run.history["bytes"][-1] == messages * 2 * 3 * 8 + joins
    assert abs(sum(run.traffic.values()) - run.history["bytes"][-1]) < len(run.traffic)
    assert run.traffic[0, 1] > 0 and (0, 5) not in run.traffic


@pytest.mark.wide(keep=["extra-None"])
@pytest.mark.parametrize(("name", "order"), [("gt_sgd", "atc"), ("extra", None)])
def test_sums_of_trackers_after_every_change(name, order):
    problem, algorithm = quad(agents=6), build_algorithm(name, order=order)
    for rounds in (7, 12, 16):
        run = diamond.simulate(problem, CHANGES, algorithm, rounds, measure="cheap")
        members = MEMBERS[max(r for r in MEMBERS if r <= rounds - 1)]
        memory = run.state.u
        total = np.asarray(memory)[members].sum(0)
        if name in ("extra", "exact_diffusion"):
            assert np.abs(total).max() < 1e-12
        else:
            assert np.abs(total - np.asarray(run.state.p)[members].sum(0)).max() < 1e-12


@pytest.mark.wide
def test_a_change_of_nothing_but_links_keeps_x():
    problem = quad(agents=4)
    algorithm = build_algorithm("dsgd")
    unchanged = changing({0: ring(4), 5: ring(4)})
    runs = [
        diamond.simulate(problem, n, algorithm, 9, measure="cheap") for n in (unchanged, ring(4))
    ]
    np.testing.assert_array_equal(runs[0].last_x, runs[1].last_x)
    np.testing.assert_array_equal(runs[0].last_y, runs[1].last_y)


@pytest.mark.wide
def test_the_remaining_agents_reach_their_objective():
    problem, data = least_squares()
    a, b = (
        np.concatenate([data[i][k] / len(data[i]["b"]) ** 0.5 for i in MEMBERS[15]]) for k in "ab"
    )
    wanted = np.linalg.lstsq(a, b, rcond=None)[0]
    run = diamond.simulate(problem, CHANGES, diamond.interact(alpha=0.2), 600, measure="cheap")
    np.testing.assert_allclose(np.asarray(run.x)[2:], np.tile(wanted, (4, 1)), atol=1e-8)


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: changing({1: ring(4)}), "first network must be that of round 0"),
        (lambda: changing({0: ring(3)}, members={0: [0, 2, 1]}), "increasing order"),
        (lambda: changing({0: ring(3)}, members={0: [0, 1, 3]}), "agent 2 never takes part"),
        (lambda: changing(NETWORKS, members={0: [0, 1, 2, 3]}), "members are given for rounds"),
        (lambda: changing([ring(4)], members=MEMBERS), "give networks as"),
        (lambda: changing({0: ring(3), 4: ring(3)}, members={0: [0, 1, 2], 4: [3, 4, 5]}), "stays"),
    ],
)
def test_refused_changes(make, reason):
    with pytest.raises(ValueError, match=reason):
        make()
