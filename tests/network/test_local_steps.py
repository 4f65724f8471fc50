"""Rounds without an exchange: counts, exactness, sites, and links that are down in given rounds."""

import jax
import numpy as np
import pytest
from helpers import build, final_progress, quad
from lockstep_agents import agents, build_algorithm, stack_states, with_own_rows

import diamond
from diamond import hypergradient as hg
from diamond.config.components import read_network
from diamond.config.federation_file import validate
from diamond.config.validation_errors import BadExperiment
from diamond.engine.site_rehearsal import rehearse
from diamond.sites.rounds.local_measures import bytes_sent

RING = diamond.network.ring(4)
EVERY = RING.every(3)


def test_nothing_is_sent_between_exchanges():
    algorithm = build_algorithm("gt_sgd", order="paper")
    run = diamond.simulate(quad(), EVERY, algorithm, rounds=8, every=1, measure="loss")
    per_round = RING.count_messages(1) * agents(quad(), RING, algorithm)[0].bytes_per_round
    np.testing.assert_array_equal(run.history["bytes"], per_round * (np.arange(9) // 3))
    assert run.messages == RING.count_messages(2) == EVERY.count_messages(8)
    assert EVERY.edges == RING.edges and RING.every(1) is RING


@pytest.mark.wide(keep=["gt_sgd-paper"])
@pytest.mark.parametrize(("name", "order"), [("gt_sgd", "paper"), ("diamond", "atc")])
def test_sites_follow_the_simulation(name, order):
    algorithm = build_algorithm(name, order=order)
    wanted = final_progress(quad(), EVERY, algorithm, 11, seed=4)
    own_rows = [with_own_rows(quad(), i) for i in range(4)]
    found = rehearse(own_rows, EVERY, algorithm, 11, seed=4)
    for a, b in zip(*map(jax.tree.leaves, (wanted.state, stack_states(found))), strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-13 * max(1, np.abs(a).max()))
    agent = agents(quad(), EVERY, algorithm, seed=4)[0]
    assert bytes_sent(agent, found[0]) == 2 * 3 * agent.bytes_per_round


@pytest.mark.wide
def test_tracking_stays_exact_and_gossip_does_not():
    """With all rows, tracking ends at the solution, and gossip farther away from it than before."""
    options = dict(alpha=0.02, beta=0.5, eta=1.0, gamma=0.5, batch=12, hypergradient=hg.exact())
    run = lambda name, network, rounds: diamond.simulate(
        quad(rows=12), network, build(name, **options), rounds, every=rounds
    ).history["metric"][-1]
    assert run("gt_sgd", EVERY, 3000) < 1e-20
    assert run("dsgd", EVERY, 1000) > 2 * run("dsgd", RING, 1000) > 1e-6


@pytest.mark.slow
def test_learned_steps_work_with_local_steps():
    metric = diamond.simulate(quad(), EVERY, diamond.diamond(batch=12), 200, every=200)
    first, last = metric.history["metric"]
    assert last < 0.05 * first


@pytest.mark.parametrize("method", [diamond.exact_diffusion, diamond.extra])
def test_methods_for_constant_weights_are_refused(method):
    with pytest.raises(ValueError, match="needs symmetric weights that stay the same"):
        diamond.simulate(quad(), EVERY, method(), 3)
    with pytest.raises(ValueError, match="needs symmetric weights that stay the same"):
        rehearse([with_own_rows(quad(), i) for i in range(4)], EVERY, method(), 3)


def test_sites_exchange_at_least_every_hundred_rounds():
    with pytest.raises(ValueError, match="at least every 100 rounds"):
        agents(quad(), RING.every(101), build_algorithm("gt_sgd", order="paper"))


def test_files_name_the_rounds_between_exchanges_and_the_deadline():
    network = read_network("ring:4,exchange_every=3")
    assert network.build().title == EVERY.title and network.options["exchange_every"] == 3
    sites = {f"s{i}": f"localhost:{7000 + i}" for i in range(4)}
    raw = {"name": "a", "rounds": 2, "network": "ring:4", "algorithm": "gt_sgd", "sites": sites}
    federation = validate(raw | {"missing": "continue", "deadline": "2 median"}, "a")
    assert federation.terms()["deadline"] == "2 median" and "deadline" in federation.to_toml()
    with pytest.raises(BadExperiment, match="neither a number of seconds"):
        validate(raw | {"deadline": "soon", "missing": "continue"}, "a")


def test_links_are_down_and_agents_skip_rounds_as_given():
    down = [[(0, 1)], [(0, 1), (0, 3)], []]
    network = diamond.network.interrupted(RING, down, [[], [0], []])
    first, second, third = (phase.matrix for phase in network.phases)
    weight = RING.matrix[0, 1]
    np.testing.assert_allclose(first - RING.matrix, weight * _laplacian(0, 1), atol=1e-15)
    np.testing.assert_array_equal(second[0], [1, 0, 0, 0])
    np.testing.assert_array_equal(third, RING.matrix)
    algorithm = build_algorithm("gt_sgd", order="paper")
    before, after = (final_progress(quad(), network, algorithm, t) for t in (1, 2))
    for a, b in zip(*(jax.tree.leaves((p.state, p.spent)) for p in (before, after)), strict=True):
        np.testing.assert_array_equal(a[0], b[0])
        assert np.any(np.asarray(a)[1:] != np.asarray(b)[1:])
    u, p = (np.sum(getattr(after.state, name), 0) for name in "up")
    np.testing.assert_allclose(u, p, atol=1e-13)
    with pytest.raises(ValueError, match="one of its agents skips the round"):
        diamond.network.interrupted(RING, [[(0, 1)]], [[0]])
    with pytest.raises(ValueError, match="has no link"):
        diamond.network.interrupted(RING, [[(0, 2)]])


def _laplacian(i, j):
    """What moves to the diagonals if a link of weight 1 is down."""
    edge = np.zeros(4)
    edge[i], edge[j] = 1, -1
    return np.outer(edge, edge)
