"""Private sites: their ledgers under kills, their budget, and their keys of noise."""

import asyncio
import json

import numpy as np
import pytest

pytest.importorskip("dp_accounting")

from crash_cluster import EVERY, LIMITS, ROUNDS, Cluster, all_killed_every
from helpers import quad, same_bits
from lockstep_agents import run_lockstep
from recovery_cases import Private

import diamond
from diamond.privacy.ledger import (
    LEDGER_FILE,
    BudgetExhausted,
    digest_arrays,
    open_ledger,
)
from diamond.privacy.private_runs import ledger_terms, with_secret
from diamond.sites.identity.handshake import compute_digests
from diamond.sites.rounds.node import Node
from diamond.sites.rounds.site_agent import Agent
from diamond.sites.transport.in_process_transport import InProcessNetwork, run_inline, run_simulated

NETWORK = diamond.network.path(3)


def make_agents(rounds=ROUNDS, epsilon=3.0, secrets=None, **options):
    algorithm = diamond.gt_sgd(alpha=0.05, beta=0.1, order="atc", batch=4)
    algorithm = diamond.private(algorithm, epsilon, clip=0.5, rounds=rounds, **options)
    problem = quad(agents=3)
    agents = []
    for i in range(3):
        rows = ([part[i]] for part in (problem.rows["train"], problem.rows["valid"]))
        own = diamond.Problem(problem.upper, problem.lower, problem.init, *rows, shuffle=False)
        seeded = algorithm if secrets is None else with_secret(algorithm, secrets[i])
        agents.append(Agent(own, NETWORK, seeded, i))
    return agents


def lines_of(folder):
    lines = [json.loads(line) for line in (folder / LEDGER_FILE).read_text().splitlines()]
    return [line for line in lines if "message" in line]


def bundle_of(folder):
    return folder.parent / "bundles" / folder.name


@pytest.mark.wide
def test_sites_without_keys_make_the_simulated_run():
    ends = run_lockstep(make_agents(), ROUNDS)
    plain = diamond.gt_sgd(alpha=0.05, beta=0.1, order="atc", batch=4)
    private = diamond.private(plain, 3.0, clip=0.5, rounds=ROUNDS)
    run = diamond.simulate(quad(agents=3), NETWORK, private, ROUNDS, progress=False)
    np.testing.assert_allclose([end.state.x for end in ends], run.x, rtol=1e-5)


@pytest.mark.wide
def test_a_ledger_survives_kills_at_any_instant_and_never_says_less(tmp_path, monkeypatch):
    """All die again and again: bits and ledger are those of a run without kills."""
    undisturbed = run_lockstep(make_agents(), ROUNDS)
    cluster = Cluster(tmp_path, agents=make_agents(), kinds=dict.fromkeys(range(3), Private))
    sent = {}
    publish = type(cluster.team[0]).outgoing_arrays

    def watch(self, progress, exchange, local_result):
        arrays = publish(self, progress, exchange, local_result)
        sent.setdefault(self.number, {})[progress.t] = digest_arrays(arrays)
        return arrays

    monkeypatch.setattr(Agent, "outgoing_arrays", watch)
    with all_killed_every(monkeypatch, cluster, 45):
        found = cluster.run()
    assert cluster.deaths >= 3
    assert all(same_bits(one, other) for one, other in zip(found, undisturbed, strict=True))
    for agent in cluster.team:
        folder = tmp_path / str(agent.number)
        entries = lines_of(bundle_of(folder))
        assert entries == lines_of(folder)
        assert [entry["round"] for entry in entries] == list(range(ROUNDS))  # one line a message
        assert {e["round"]: e["digest"] for e in entries} == sent[agent.number]
        epsilons = [entry["epsilon"] for entry in entries]
        assert epsilons == sorted(epsilons) and epsilons[-1] == pytest.approx(3.0, rel=2e-3)
        terms = ledger_terms(agent.algorithm, agent.problem)
        assert 0 < open_ledger(bundle_of(folder), folder, terms).spent <= 3.0


def test_a_site_stops_before_it_overspends_and_tells_its_neighbours(tmp_path):
    """A budget for four rounds, in a run that its neighbours want to have seven."""
    agents = make_agents(rounds=4)

    async def everyone():
        wire = InProcessNetwork()
        for agent in agents:
            place = tmp_path / str(agent.number)
            wire.nodes[agent.number] = Private(
                agent, ROUNDS, wire.transport(agent.number), place, EVERY, LIMITS, run_inline
            )
        nodes = list(wire.nodes.values())
        results = await asyncio.gather(*(n.run() for n in nodes), return_exceptions=True)
        return nodes, results

    nodes, results = run_simulated(everyone())
    assert any(isinstance(result, BudgetExhausted) for result in results)
    assert all(isinstance(result, Exception) for result in results)
    for node in nodes:
        assert node.status()["epsilon"] <= node.status()["budget"] == 3.0
        assert max(e["round"] for e in lines_of(tmp_path / str(node.agent.number))) == 3


@pytest.mark.wide
def test_noise_comes_from_the_sites_key_which_neighbours_do_not_have():
    """Other keys, other messages and the same agreement; the key is in no digest."""
    words = np.arange(12, dtype=np.uint32).reshape(3, 4)
    agents, others = make_agents(secrets=words), make_agents(secrets=words + 1)
    x = [run_lockstep(team, 2)[0].state.x for team in (agents, others)]
    assert np.abs(x[0] - x[1]).max() > 1e-3
    assert compute_digests(agents[0], ROUNDS) == compute_digests(others[1], ROUNDS)
    weaker = make_agents(clipping="whole", epsilon=2.0)[0]
    assert (
        compute_digests(weaker, ROUNDS)["network"] == compute_digests(agents[0], ROUNDS)["network"]
    )


def test_measurements_are_not_sent(tmp_path):
    """A number that sites would agree on by their rows is refused before it is sent."""
    agent = make_agents()[0]
    node = Node(agent, ROUNDS, InProcessNetwork().transport(0), tmp_path, run_blocking=run_inline)
    with pytest.raises(ValueError, match="cannot combine privacy with open numbers"):
        run_simulated(node.exchange_runner._network_maximum(np.zeros(1), 0, 0))
