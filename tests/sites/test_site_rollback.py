"""Sites roll back to the same round with the same steps as the simulation, after crashes too."""

import asyncio
from functools import cache, partial

import jax
import numpy as np
import pytest
from crash_cluster import ROUNDS, Cluster, all_killed_every, killed_at, watch_instants
from fast_compilation import skip_measures, without_optimizations
from helpers import ESTIMATORS, logistic, same_bits
from lockstep_agents import agents, stack_states, with_own_rows
from rollback_scenarios import nan_beyond, script_loss_increase

import diamond
from diamond.algorithms.parts import adaptive_steps
from diamond.auto import rollback_limits
from diamond.auto.adaptive_optimizers import DistanceOverGradients
from diamond.core import pytrees
from diamond.engine import rollback_policy as _rewind
from diamond.engine.site_rehearsal import rehearse
from diamond.records.folder_writer import Writer
from diamond.records.manifest import RunOrigin
from diamond.schedules.deferred import values_by_name
from diamond.sites.memory import site_checkpoint, site_rollback
from diamond.sites.memory.outbox import Outbox
from diamond.sites.memory.site_run_folder import SiteRunFolder
from diamond.sites.rounds import site_agent
from diamond.sites.rounds.local_measures import bytes_sent
from diamond.sites.rounds.node import Node
from diamond.sites.rounds.round_progress import RollbackState
from diamond.sites.transport.in_process_transport import InProcessNetwork, run_inline, run_simulated

NETWORK = diamond.network.path(3)  # of diameter 2
SOME = diamond.bome(beta=0.1, batch=4)  # alpha is open, and y is not solved for
LEARNED = diamond.gt_sgd(beta=0.1, batch=4, hypergradient=ESTIMATORS["exact"])  # with curvature
VICTIM = 1
pytestmark = pytest.mark.filterwarnings("ignore:.*; back to round:RuntimeWarning")


@pytest.fixture(autouse=True)
def compiled_quickly(monkeypatch):
    """x moves from the first round on, so that it is lost at once."""
    without_rest = partial(DistanceOverGradients, rest=0)
    monkeypatch.setattr(adaptive_steps, "DistanceOverGradients", without_rest)
    with without_optimizations():
        yield


def compared(problem, rounds, method=SOME):
    """What the simulation has found, where sites end as it does."""
    with pytest.MonkeyPatch.context() as patch:
        skip_measures(patch)
        wanted = diamond.simulate(problem, NETWORK, method, rounds, every=rounds)
    found = rehearse([with_own_rows(problem, i) for i in range(3)], NETWORK, method, rounds)
    for a, b in zip(*map(jax.tree.leaves, (wanted.state, stack_states(found))), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-9 * np.abs(a).max(), rtol=0)
    for progress in found:
        numbers = values_by_name(progress.estimates)
        for name in ("risen", "shrunk", "lost"):
            assert numbers.get(name) == wanted.resolved.get(name), name
        assert progress.t == rounds and progress.rounds_run == rounds + wanted.resolved["lost"]
    return wanted.resolved


@cache
def risky():
    """The upper loss is not a number after the first step, unless that is shorter by some."""
    free = logistic()
    x = diamond.simulate(free, NETWORK, SOME, 1, every=1).last_x
    way = jax.tree.map(lambda a, b: a.mean(0) - b, x, free.start(0)[0])
    return nan_beyond(free, 0.6 * float(pytrees.norm(way)))


@pytest.mark.wide
def test_diverged_and_increasing_runs_roll_back_as_in_the_simulation(monkeypatch):
    script_loss_increase(monkeypatch, 50, 1)
    found = compared(risky(), 55)
    assert found["shrunk"] < 1 and found["risen"] == 1 and found["lost"] > 49


@pytest.mark.wide
def test_huge_finite_values_roll_back_as_in_the_simulation(monkeypatch, caplog):
    for module in (rollback_limits, _rewind):
        monkeypatch.setattr(module, "SAVE_EVERY", 5)
    monkeypatch.setattr(rollback_limits, "EXPLODED", 0.57)  # times the start
    monkeypatch.setattr(rollback_limits, "GROWTH", 0.0)  # whether it goes on to grow or not
    with pytest.warns(RuntimeWarning, match="x or y is lost in round") as warnings:
        compared(logistic(), 12, LEARNED)
    messages = [line.getMessage().split(": ", 1)[1] for line in caplog.records]
    assert (
        messages[::3] == messages[1::3] == messages[2::3] == [str(one.message) for one in warnings]
    )
    assert not any("not finite" in line for line in messages)


@cache
def team():
    return tuple(agents(risky(), NETWORK, SOME))


@cache
def rehearsed():
    return rehearse([with_own_rows(risky(), i) for i in range(3)], NETWORK, SOME, ROUNDS)


@pytest.fixture
def hasty(monkeypatch):
    """The loss is looked at in rounds 1, 3 and 7, where it has risen; x is lost at first."""
    script_loss_increase(monkeypatch, ROUNDS, 3)
    monkeypatch.setattr(
        site_agent.deferred, "reestimation_rounds", lambda t: [r for r in (1, 3, ROUNDS) if r <= t]
    )
    calm = rehearsed()
    numbers = values_by_name(calm[0].estimates)
    assert numbers["shrunk"] < 1 and numbers["risen"] > 0  # both happen
    return calm


def ends_well(cluster, calm):
    found = cluster.run()
    assert [p.t for p in found] == [ROUNDS] * 3
    assert all(same_bits(one, other) for one, other in zip(found, calm, strict=True))


@pytest.mark.wide
@pytest.mark.parametrize("apart", [250, pytest.param(20, marks=pytest.mark.slow)])
def test_killed_at_any_instant_of_a_rollback(tmp_path, monkeypatch, hasty, apart):
    seen = []
    with watch_instants(monkeypatch, lambda site_agent, label: seen.append(site_agent)):
        ends_well(Cluster(tmp_path / "calm", agents=team()), hasty)
    for n in range(0, seen.count(VICTIM), apart):
        cluster = Cluster(tmp_path / str(n), agents=team())
        with killed_at(monkeypatch, VICTIM, n):
            ends_well(cluster, hasty)
        assert cluster.deaths + cluster.late_kills == 1, n


@pytest.mark.wide
def test_all_killed_at_once_again_and_again(tmp_path, monkeypatch, hasty):
    cluster = Cluster(tmp_path, agents=team())
    with all_killed_every(monkeypatch, cluster, 170):
        ends_well(cluster, hasty)
    assert cluster.deaths >= 3


@pytest.mark.wide
def test_the_folder_of_a_site_has_only_rounds_that_were_not_rolled_back(tmp_path, hasty):
    async def everyone():
        wire, runs = InProcessNetwork(), []
        for one in team():
            place = tmp_path / str(one.number)
            node = Node(one, ROUNDS, wire.transport(one.number), place, 3, run_blocking=run_inline)
            wire.nodes[one.number] = node
            runs.append(node.run())
        node = wire.nodes[VICTIM]
        with Writer(node.folder) as writer:
            diary = SiteRunFolder(writer, node, RunOrigin("b", "", "", "", "", {}, "", {}), "")
            node.on_round = diary.record_evaluation
            with diary.record_outcome():
                found = await asyncio.gather(*runs)
            return found[VICTIM], writer.metrics.lines()

    found, measured = run_simulated(everyone())
    assert same_bits(found, hasty[VICTIM]) and found.rounds_run > 2 * ROUNDS
    lines = {name: np.array([line[name] for line in measured]) for name in measured[-1]}
    np.testing.assert_array_equal(lines["round"], [0, 3, 6, 7])
    assert (
        lines["bytes"][-1] == bytes_sent(team()[VICTIM], found)
        and (np.diff(lines["bytes"]) > 0).all()
    )
    assert lines["samples"][-1] == diamond.cost.total(found.spent)[0]


def test_a_checkpoint_has_the_rollback_states_and_the_initial_state(tmp_path):
    one = team()[VICTIM]
    x, y = jax.tree.map(lambda a: a + 1, one.problem.start(0))
    start = one.initial_progress_at(x, y)  # as a run that goes on from another does
    states = [
        RollbackState(t, jax.tree.map(lambda a, t=t: a + t, start.state), None)
        for t in (100, 200, 300)
    ]
    progress = start._replace(
        t=25, clock_offset=33, recent_states=tuple(states[:2]), lowest_state=states[2]
    )
    site_checkpoint.save(tmp_path, "run", progress, Outbox([0, 2]))
    found = site_checkpoint.restore(tmp_path, "run", one.initial_progress(), Outbox([0, 2]))
    assert found.clock == 58 and same_bits(
        found._replace(algorithm=None), progress._replace(algorithm=None)
    )
    assert same_bits(site_rollback.initial_state(one, found).state.x, x)
    assert [state.t for state in site_rollback.states_until(found, 199)] == [100]
    back, message = site_rollback.roll_back_from_divergence(
        one, found._replace(estimates={}), 250, [1.0, 2.0, 1e3], span=10
    )
    assert (back.t, back.clock_offset, back.recent_states) == (
        100,
        43,
        (),
    ) and "back to round 100 with" in message
    assert values_by_name(back.estimates) == {"shrunk": 0.25, "lost": 151}
    back, _ = site_rollback.roll_back_from_divergence(
        one, found._replace(estimates={}), 99, [1.0], span=10
    )
    assert back.t == 0 and same_bits(back.state.x, x)
