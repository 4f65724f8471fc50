"""Sites that go back: to the round of the simulation that goes back, with its steps, killed too."""

from functools import cache
from itertools import count

import jax
import numpy as np
import pytest
from compiling import quickly
from crashing import ROUNDS, Cluster, Killed, watched
from helpers import ESTIMATORS, logistic, quad, same_bits
from peering import agents, own, stacked

import diamond
from diamond.auto import step_sizes, watch
from diamond.numbers.open_numbers import by_name
from diamond.peers import agent
from diamond.runtimes.peers import rehearse

NETWORK = diamond.network.path(3)  # of diameter 2
SOME = diamond.gt_sgd(beta=0.1, batch=4, hypergradient=ESTIMATORS["exact"])  # alpha is open
VICTIM = 1
pytestmark = pytest.mark.filterwarnings("ignore:.*; back to round:RuntimeWarning")


@pytest.fixture(autouse=True)
def compiled_quickly():
    with quickly():
        yield


def compared(problem, rounds):
    """What the simulation has found, where sites end as it does."""
    wanted = diamond.simulate(problem, NETWORK, SOME, rounds, every=rounds)
    found = rehearse([own(problem, i) for i in range(3)], NETWORK, SOME, rounds)
    for a, b in zip(*map(jax.tree.leaves, (wanted.state, stacked(found))), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-9 * np.abs(a).max(), rtol=0)
    for progress in found:
        numbers = by_name(progress.found)
        for name in ("risen", "shrunk", "lost"):
            assert numbers.get(name) == wanted.resolved.get(name), name
        assert numbers["alpha"] == pytest.approx(wanted.resolved["alpha"], rel=1e-9)
        assert progress.t == rounds and progress.made == rounds + wanted.resolved["lost"]
    return wanted.resolved


def test_they_go_back_to_the_lowest_look_of_the_simulation(monkeypatch):
    monkeypatch.setitem(step_sizes.STEP, "atc", 4.0)
    found = compared(quad(agents=3).problem, 60)
    assert found["risen"] == 1 and found["lost"] == 25


def test_after_a_divergence_steps_shrink_together(monkeypatch):
    monkeypatch.setitem(step_sizes.STEP, "atc", 64.0)
    monkeypatch.setattr(watch, "SMALL", np.inf)  # that is another matter
    found = compared(logistic(), 30)
    assert found["shrunk"] < 0.25 and found["lost"] > 1


@cache
def team():
    return tuple(agents(logistic(), NETWORK, SOME))


@pytest.fixture
def hasty(monkeypatch):
    """Numbers are found anew in rounds 3 and 7, with an alpha far too large; what comes of it."""
    monkeypatch.setitem(step_sizes.STEP, "atc", 3e3)
    monkeypatch.setattr(agent, "refreshes", lambda t: [r for r in (3, ROUNDS) if r <= t])
    calm = rehearse([own(logistic(), i) for i in range(3)], NETWORK, SOME, ROUNDS)
    numbers = by_name(calm[0].found)
    assert numbers["shrunk"] < 1 and numbers["risen"] > 0  # both happen
    return calm


def ends_well(cluster, calm):
    found = cluster.run()
    assert [p.t for p in found] == [ROUNDS] * 3
    assert all(same_bits(one, other) for one, other in zip(found, calm, strict=True))


@pytest.mark.parametrize("apart", [150, pytest.param(1, marks=pytest.mark.slow)])
def test_killed_at_any_instant_of_going_back(tmp_path, monkeypatch, hasty, apart):
    seen = []
    with watched(monkeypatch, lambda agent, label: seen.append(agent)):
        ends_well(Cluster(tmp_path / "calm", agents=team()), hasty)
    for n in range(0, seen.count(VICTIM), apart):
        cluster, ticks = Cluster(tmp_path / str(n), agents=team()), count()

        def tick(agent, label):
            if agent == VICTIM and next(ticks) == n:
                raise Killed

        with watched(monkeypatch, tick):
            ends_well(cluster, hasty)
        assert cluster.deaths + cluster.late == 1, n


def test_all_killed_at_once_again_and_again(tmp_path, monkeypatch, hasty):
    cluster, ticks = Cluster(tmp_path, agents=team()), count(1)

    def tick(agent, label):
        if next(ticks) % 170 == 0:
            cluster.kill(*(number for number in range(3) if number != agent))
            raise Killed

    with watched(monkeypatch, tick):
        ends_well(cluster, hasty)
    assert cluster.deaths >= 3
