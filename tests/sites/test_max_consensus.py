"""Numbers that sites estimate together equal those of the simulation, at the same cost."""

import asyncio
from functools import cache

import jax
import numpy as np
import pytest
from crash_cluster import ROUNDS, Cluster, all_killed_every, killed_at, watch_instants
from fast_compilation import skip_measures, without_optimizations
from helpers import ESTIMATORS, METHODS, build, logistic, same_bits
from lockstep_agents import NAMES, agents, run_lockstep, stack_states

import diamond
from diamond.auto import loss_monitor
from diamond.schedules.deferred import count_exchanges, values_by_name
from diamond.sites.rounds import site_agent
from diamond.sites.rounds.max_consensus import NotAgreed
from diamond.sites.rounds.node import Node
from diamond.sites.transport import wire_format
from diamond.sites.transport.errors import RunFailed
from diamond.sites.transport.in_process_transport import InProcessNetwork, run_inline, run_simulated

pytestmark = pytest.mark.filterwarnings("ignore:the upper loss is:RuntimeWarning")  # goes back
NETWORK = diamond.network.path(3)  # of diameter 2
PAST = 52  # rounds: two past the second look at the loss
TOLERANCE = {"float32": 1e-6, "float64": 1e-12}
# A learned step takes decisions (when to solve locally, when the ramp ends), each of which rounding
# may turn: two programs then differ by more than rounding.
LEARNED = {"float32": 5e-3, "float64": 1e-8}
SOME = diamond.bome(beta=0.1, batch=4)  # alpha is open, and y is not solved for
VICTIM = 1
TALKS = 1  # at each look: about the upper loss

FAST = "gt_sgd", "float64"
CASES = [
    pytest.param(name, precision, marks=[pytest.mark.slow] * ((name, precision) != FAST))
    for name in NAMES
    for precision in TOLERANCE
]


@pytest.fixture(autouse=True)
def compiled_quickly():
    with without_optimizations():
        yield


def close(one, other, tolerance):
    for a, b in zip(*map(jax.tree.leaves, (one, other)), strict=True):
        np.testing.assert_allclose(a, b, atol=tolerance * np.abs(a).max(), rtol=0)


@pytest.mark.wide
@pytest.mark.parametrize(("name", "precision"), CASES)
def test_numbers_and_trajectory_are_the_simulated_ones(name, precision, monkeypatch):
    skip_measures(monkeypatch)
    problem, left = logistic(dtype=precision), build(name, batch=4)
    with jax.enable_x64(precision == "float64"):
        wanted = diamond.simulate(problem, NETWORK, left, PAST, every=PAST)
        found = run_lockstep(agents(problem, NETWORK, left), PAST)
    assert all(values_by_name(one.estimates) == wanted.resolved for one in found)
    ends = stack_states(found)
    strict = (name, precision) == FAST
    close(
        (wanted.last_x, wanted.last_y),
        (ends.x, ends.y),
        (TOLERANCE if strict else LEARNED)[precision],
    )


STEPS = {"alpha": 0.02, "beta": 0.1, "delta": 0.1, "eta": 0.3, "gamma": 0.3, "theta": 0.3}
EXACT_MEANS = {"solve"}  # no messages of neighbours: compared elsewhere
COUNTS_AGENTS = "bome"  # its directions depend on the number of agents, which a site must know


@pytest.mark.wide
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.slow] * (name != COUNTS_AGENTS))
        for name in sorted({*METHODS} - EXACT_MEANS)
    ],
)
def test_three_rounds_of_every_method_are_the_simulated_ones(name, monkeypatch):
    skip_measures(monkeypatch)
    method = build(name, **STEPS, batch=2, period=4)
    level = "personal" if "personal" in method.lower_levels else method.lower_levels[0]
    problem = logistic(lower_level=level)
    with jax.enable_x64(True):
        wanted = diamond.simulate(problem, NETWORK, method, 3, every=3)
        found = run_lockstep(agents(problem, NETWORK, method), 3)
    close(wanted.state, stack_states(found), 1e-12)


@pytest.mark.wide
@pytest.mark.parametrize("precision", TOLERANCE)
def test_with_given_steps_the_trajectory_is_the_simulated_one_to_rounding(precision, monkeypatch):
    skip_measures(monkeypatch)
    problem = logistic(dtype=precision)
    given = build("interact", alpha=0.05, beta=0.1, hypergradient=ESTIMATORS["exact"])
    with jax.enable_x64(precision == "float64"):
        wanted = diamond.simulate(problem, NETWORK, given, PAST, every=PAST)
        found = run_lockstep(agents(problem, NETWORK, given), PAST)
    close(wanted.state, stack_states(found), TOLERANCE[precision])


@pytest.mark.slow
def test_costs_equal_those_of_the_simulation():
    """Every frame that arrives on the wire, and every agent's own counter, rows uneven."""
    problem, arrived = logistic(rows=(10, 10, 7)), {}

    async def note(hop, content):
        if hop.is_response and content:
            header, arrays = wire_format.unpack(content, 2**20)
            if header["kind"] == "message" and header["arrays"]:
                which = hop.sender, header["sender"], header["round"], header["talk"]
                arrived[which] = len(arrays)
        return content

    async def everyone():
        wire = InProcessNetwork(note)
        for one in agents(problem, NETWORK, SOME):
            wire.nodes[one.number] = Node(
                one, PAST, wire.transport(one.number), run_blocking=run_inline
            )
        return await asyncio.gather(*(node.run() for node in wire.nodes.values()))

    found = run_simulated(everyone())
    wanted = diamond.simulate(problem, NETWORK, SOME, PAST, every=PAST)
    assert sum(arrived.values()) == wanted.history["bytes"][-1]
    assert len(arrived) == wanted.messages
    spent = diamond.cost.total(np.stack([p.spent for p in found]))
    np.testing.assert_array_equal(spent.T, list(wanted.costs.values()))
    assert len(set(wanted.costs["samples"])) > 1  # each has paid for its own rows
    close(wanted.state, stack_states(found), 1e-12)


@cache
def team():
    return tuple(agents(logistic(), NETWORK, SOME))


@pytest.fixture
def soon(monkeypatch):
    """The loss is looked at in round 3, and once more at the end; no faults come to this."""
    monkeypatch.setattr(
        site_agent.deferred, "reestimation_rounds", lambda t: [r for r in (3, ROUNDS) if r <= t]
    )
    monkeypatch.setattr(loss_monitor, "TOLERANCE", 10.0)  # it does not go back
    calm = run_lockstep(team(), ROUNDS)
    assert all(count_exchanges(p.estimates).talks == 2 * TALKS for p in calm)
    return calm


def ends_well(cluster, calm):
    found = cluster.run()
    assert [p.t for p in found] == [ROUNDS] * 3
    assert all(same_bits(one, other) for one, other in zip(found, calm, strict=True))


@pytest.mark.wide
@pytest.mark.parametrize("apart", [7, pytest.param(1, marks=pytest.mark.slow)])
def test_killed_at_every_instant_of_a_consensus(tmp_path, monkeypatch, soon, apart):
    seen = []
    ends_well(Cluster(tmp_path / "first", agents=team()), soon)  # the first one also compiles
    with watch_instants(monkeypatch, lambda site_agent, label: seen.append((site_agent, label))):
        ends_well(Cluster(tmp_path / "calm", agents=team()), soon)
    assert (
        sum(mark == (VICTIM, "resolve_deferred") for mark in seen) == 5
    )  # asked, then known: twice; and nothing to ask at first
    for n in range(0, sum(number == VICTIM for number, _ in seen), apart):
        cluster = Cluster(tmp_path / str(n), agents=team())
        with killed_at(monkeypatch, VICTIM, n):
            ends_well(cluster, soon)
        assert cluster.deaths + cluster.late_kills == 1, n


def test_all_killed_at_once_again_and_again(tmp_path, monkeypatch, soon):
    cluster = Cluster(tmp_path, agents=team())
    with all_killed_every(monkeypatch, cluster, 90):
        ends_well(cluster, soon)
    assert cluster.deaths >= 6


def test_a_consensus_repeats_no_measurement(monkeypatch, soon):
    looked, losses = [], loss_monitor._losses
    monkeypatch.setattr(loss_monitor, "_losses", lambda *a: looked.append(1) or losses(*a))
    run_lockstep(team(), 3)
    assert len(looked) == 3


def test_a_measurement_that_is_not_finite_stops_all_sites_and_is_named(monkeypatch):
    resolve_deferred = site_agent.Agent.resolve_deferred

    def broken(self, progress, largest):
        try:
            return resolve_deferred(self, progress, largest)
        except NotAgreed as open:
            values = open.values * (np.nan if self.number == 2 else 1)
            raise NotAgreed(open.name, values) from None

    monkeypatch.setattr(site_agent.Agent, "resolve_deferred", broken)

    async def everyone():
        wire = InProcessNetwork()
        for one in team():
            wire.nodes[one.number] = Node(
                one, 3, wire.transport(one.number), run_blocking=run_inline
            )
        runs = (node.run() for node in wire.nodes.values())
        return await asyncio.gather(*runs, return_exceptions=True)

    found = run_simulated(everyone())
    assert [type(error) for error in found] == [RunFailed, RunFailed, FloatingPointError]
    message = "agent 2 diverged in round 1: what it measures has numbers that are not finite"
    assert all(str(error).startswith(message) for error in found)
