"""Exact means among sites: the bits of the simulation, along the tree, after crashes too."""

import asyncio

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tls_sites
from crash_cluster import EVERY, LIMITS, ROUNDS, Cluster, killed_at, watch_instants
from exact_mean_method import MeanMethod, ordered_mean
from fast_compilation import skip_loss_checks, skip_measures, without_optimizations
from helpers import final_progress, quad, same_bits
from lockstep_agents import agents, stack_states, with_own_rows
from two_faced_site import found_signers, signing

import diamond
from diamond.engine.site_rehearsal import rehearse
from diamond.sites.rounds import message_exchange
from diamond.sites.rounds.local_measures import bytes_sent
from diamond.sites.rounds.message_exchange import ExchangeRunner
from diamond.sites.rounds.node import Node
from diamond.sites.rounds.resource_estimate import estimate_resources
from diamond.sites.transport.in_process_transport import InProcessNetwork, run_inline

NETWORKS = {
    "star": diamond.network.star(5),
    "path": diamond.network.path(4),
    "ring": diamond.network.ring(5),
    "pair": diamond.network.path(2),
}


@pytest.fixture(autouse=True)
def compiled_quickly(monkeypatch):
    skip_loss_checks(monkeypatch)
    with without_optimizations():
        yield


def products(agents, dtype):
    """A problem whose gradients are products, of the same bits in any program."""
    random = np.random.default_rng(0)
    rows = [random.normal(size=(6, 4)).astype(dtype) for _ in range(agents)]
    loss = lambda x, rows: jnp.mean(jnp.sum((x * rows) ** 2, axis=-1))
    return diamond.Problem(loss, None, lambda key: jnp.ones(4, dtype), rows)


def both_ends(problem, network, method):
    wanted = final_progress(problem, network, method, 4).state
    rows = [with_own_rows(problem, i) for i in range(network.agents)]
    return wanted, stack_states(rehearse(rows, network, method, 4))


@pytest.mark.wide
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", NETWORKS)
def test_sites_have_the_bits_of_the_simulation(name, dtype):
    network = NETWORKS[name]
    method = MeanMethod(np.asarray(0.1, dtype), batch=1)
    wanted, found = both_ends(products(network.agents, dtype), network, method)
    assert same_bits(wanted, found) and np.ptp(found.x, axis=0).max() == 0


@pytest.mark.wide
@pytest.mark.parametrize("name", ["ring", "pair"])
def test_means_and_gossip_follow_one_another(name):
    network = NETWORKS[name]
    wanted, found = both_ends(quad(agents=network.agents), network, MeanMethod(0.1, "around"))
    for a, b in zip(*map(jax.tree.leaves, (wanted, found)), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-14)
    assert (np.asarray(found.mean["rows"]) == 1).all()


def test_totals_are_added_in_the_order_of_the_tree(monkeypatch):
    network, sent = diamond.network.star(6), {}
    run_mean = ExchangeRunner._run_mean

    async def watch(self, progress, exchange):
        after, messages = await run_mean(self, progress, exchange)
        sent[self.agent.number] = messages
        return after, messages

    monkeypatch.setattr(ExchangeRunner, "_run_mean", watch)
    problem = quad(agents=6)
    rehearse([with_own_rows(problem, i) for i in range(6)], network, MeanMethod(), 1)
    own = np.stack([np.asarray(sent[i][i][0]) for i in range(6)])
    expected = ordered_mean(network.spanning_tree, own)
    for messages in sent.values():
        np.testing.assert_array_equal(messages[message_exchange.MEAN_SOURCE][0], expected)


@pytest.mark.wide
def test_the_bytes_of_sites_are_those_of_the_simulation(monkeypatch):
    skip_measures(monkeypatch)
    network, problem, method = NETWORKS["ring"], quad(agents=5), MeanMethod(0.1, "around")
    team = agents(problem, network, method)
    found = rehearse([with_own_rows(problem, i) for i in range(5)], network, method, 4)
    run = diamond.simulate(problem, network, method, 4, every=4)
    sent = sum(bytes_sent(agent, progress) for agent, progress in zip(team, found))
    assert sent == run.history["bytes"][-1]
    needs = [
        estimate_resources(a, 4).disk for a in (team[0], agents(problem, network, MeanMethod())[0])
    ]
    assert needs[0] > needs[1] > 4 * 2 * 4 * 32


def path_of_four(kind):
    return agents(quad(agents=4), NETWORKS["path"], MeanMethod(0.1, kind))


@pytest.mark.wide
@pytest.mark.parametrize(("kind", "victim"), [("mean", 1), ("mean", 3), ("around", 2)])
def test_killed_at_any_instant_it_ends_in_the_same_bits(kind, victim, tmp_path, monkeypatch):
    team, seen = path_of_four(kind), []
    with watch_instants(monkeypatch, lambda agent, label: seen.append(agent)):
        wanted = Cluster(tmp_path / "calm", agents=team).run()
    total = seen.count(victim)
    assert total > 50
    for n in range(3, total, 11):
        cluster = Cluster(tmp_path / str(n), agents=team)
        with killed_at(monkeypatch, victim, n):
            found = cluster.run()
        assert cluster.deaths + cluster.late_kills == 1, n
        assert [p.t for p in found] == [ROUNDS] * 4
        assert all(same_bits(one, other) for one, other in zip(found, wanted, strict=True)), n
        assert cluster.most_messages <= (4 if kind == "around" else 2) * (2 * EVERY + 2)


def test_neighbours_beside_the_tree_let_messages_be_discarded(tmp_path):
    cluster = Cluster(
        tmp_path, agents=agents(quad(agents=4), diamond.network.ring(4), MeanMethod())
    )
    assert [p.t for p in cluster.run()] == [ROUNDS] * 4
    assert cluster.most_messages <= 2 * (2 * EVERY + 2) < 2 * ROUNDS


@pytest.mark.wide
@pytest.mark.parametrize("kind", ["mean", "around"])
def test_sites_over_tls_of_which_one_dies_end_in_the_same_bits(kind, tmp_path, monkeypatch):
    network, method = diamond.network.path(3), MeanMethod(0.1, kind)
    team = agents(quad(agents=3), network, method)
    monkeypatch.setattr(tls_sites, "team", lambda: team)
    bundles = tls_sites.federation(tmp_path / "federation")

    async def live(bundle):
        place = tmp_path / bundle.me.name
        if bundle.me.number == 1:
            async with tls_sites.running_site(bundle, place) as node:
                doomed = asyncio.ensure_future(node.run())
                while not list(place.glob("checkpoint/*4.json")):
                    await asyncio.sleep(0.01)
                doomed.cancel()
            await asyncio.sleep(0.5)
        async with tls_sites.running_site(bundle, place) as node:
            return await node.run()

    async def everyone():
        return await asyncio.gather(*map(live, bundles))

    found = asyncio.run(everyone())
    wanted = Cluster(tmp_path / "rehearsed", agents=team).run()
    assert all(same_bits(a.state, b.state) for a, b in zip(found, wanted, strict=True))


def test_signed_means_have_the_same_bits_and_accuse_nobody(tmp_path):
    team = path_of_four("around")
    signers, _ = found_signers(tmp_path / "federation", NETWORKS["path"])
    signed = Cluster(tmp_path / "signed", agents=team, sign=signing(signers)).run()
    plain = Cluster(tmp_path / "plain", agents=team).run()
    assert all(same_bits(a.state, b.state) for a, b in zip(signed, plain, strict=True))
    assert not list(tmp_path.glob("signed/*/*proof*/*.json"))


def test_what_excludes_exact_means_is_refused():
    problem = quad(agents=4)
    network = NETWORKS["path"]
    for changed in (network.every(2), diamond.network.ring(4).masked()):
        with pytest.raises(ValueError, match="cannot combine exact means with"):
            agents(problem, changed, MeanMethod())
    agent = agents(problem, network, MeanMethod())[0]
    with pytest.raises(ValueError, match="rounds continue without absent sites"):
        fixed = agent, 4, InProcessNetwork().transport(0), None, 2, LIMITS, run_inline
        Node(*fixed, missing="continue")
