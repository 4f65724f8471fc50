"""Deadlines: a slow agent takes part in some rounds, delays nobody, and can be simulated."""

import asyncio

import numpy as np
import pytest
from absent_agents import AbsenceScenario, RecordingAgent
from helpers import final_progress, flat, quad
from lockstep_agents import build_algorithm, stack_states

import diamond
from diamond.sites.memory.edge_journal import EdgeJournal, recorded_network
from diamond.sites.rounds.node import Node
from diamond.sites.rounds.round_deadline import Deadline, parse_deadline
from diamond.sites.transport.timeouts import Timeouts

RING, SLOW, SLOWNESS, ROUNDS = diamond.network.ring(5), 2, 5, 40
LIMITS = Timeouts(connect=1.0, round=40.0, give_up=900.0)
FIRST = 3  # rounds before the first deadline, at the pace of the slow agent


class DeadlineScenario(AbsenceScenario):
    """Agents of which one computes slowly; the others take a second a round."""

    def __init__(self, folder, deadline="1.5 median", **options):
        super().__init__(folder, **{"network": RING} | options)
        self.deadline = deadline

    async def run_slowly(self, function, *args):
        if function.__name__ == "compute":
            await asyncio.sleep(SLOWNESS if function.__self__.number == SLOW else 1.0)
        return function(*args)

    def node(self, agent):
        number = agent.number
        transport, place = self.wire.transport(number), self.folder / str(number)
        fixed = RecordingAgent(agent, self), ROUNDS, transport, place, 7, LIMITS
        return Node(*fixed, self.run_slowly, missing="continue", deadline=self.deadline)

    def rounds_run(self, i):
        return [t for agent, t in self.states if agent == i]


def check_and_replay(scenario, order, name="gt_sgd"):
    """Edges agree, trackers keep their sum, and the simulation of the journals is the same run."""
    found, _ = scenario.run()
    assert [progress.t for progress in found] == [ROUNDS] * 5
    if found[0].state.u is not None:
        u, p = (sum(getattr(progress.state, part) for progress in found) for part in "up")
        np.testing.assert_allclose(u, p, rtol=0, atol=1e-12 * max(1, np.abs(p).max()))
    network = recorded_network(RING, [scenario.folder / str(i) for i in range(5)])
    for t, phase in enumerate(network.phases):
        matrix = phase.matrix
        np.testing.assert_array_equal(matrix, matrix.T)
        np.testing.assert_allclose(matrix.sum(0), 1, atol=1e-14)
        for i in range(5):
            assert (i in phase.skipping) == ((i, t) not in scenario.states)
            for j, is_used in scenario.sources_used.get((i, t), {}).items():
                assert is_used == (matrix[i, j] > 0)
    algorithm = build_algorithm(name, order=order)
    wanted = final_progress(quad(agents=5), network, algorithm, ROUNDS)
    state = stack_states(found)
    np.testing.assert_allclose(flat(wanted.state), flat(state), rtol=0, atol=1e-12)
    np.testing.assert_array_equal(wanted.spent, [progress.spent for progress in found])
    return network


@pytest.mark.wide
@pytest.mark.parametrize("order", ["paper", "atc"])
def test_a_slow_agent_takes_part_and_delays_nobody(tmp_path, order):
    scenario = DeadlineScenario(tmp_path, order=order)
    network = check_and_replay(scenario, order)
    fast = [i for i in range(5) if i != SLOW]
    alone = (ROUNDS - FIRST) * 1.0 + FIRST * SLOWNESS  # what the fast ones need
    assert max(scenario.end_times[i] for i in fast) < 1.1 * alone
    after = scenario.rounds_run(SLOW)[FIRST:]
    met = [t for t in after if any(scenario.sources_used[SLOW, t].values())]
    assert len(met) >= 2 and len(scenario.rounds_run(SLOW)) < ROUNDS / 4
    assert all(len(scenario.rounds_run(i)) > ROUNDS - 2 * SLOWNESS for i in fast)
    assert network.kind == "balanced"


SLOW_KILLS = [pytest.param(n, marks=[pytest.mark.slow] * (n > 0)) for n in range(4)]


@pytest.mark.parametrize("n", SLOW_KILLS)
def test_killed_agents_skip_the_same_rounds_again(tmp_path, n):
    absences = [(SLOW, 19.3 + 2.9 * n, 21.2 + 2.9 * n), (1, 30.0 + n, 31.0 + n)]
    scenario = DeadlineScenario(tmp_path, deadline=1.6, absences=absences)
    check_and_replay(scenario, "paper")
    assert max(scenario.end_times[i] for i in (0, 3, 4)) < 1.2 * ROUNDS


def test_without_slow_agents_the_run_equals_one_that_waits(tmp_path, monkeypatch):
    monkeypatch.setattr("test_round_deadline.SLOWNESS", 1.0)
    monkeypatch.setattr("test_round_deadline.ROUNDS", 20)
    scenario = DeadlineScenario(tmp_path)
    network = check_and_replay(scenario, "paper")
    assert not any(phase.skipping for phase in network.phases)
    assert all(phase.graph.number_of_edges() == 5 for phase in network.phases)


def test_the_history_of_a_journal_is_complete(tmp_path):
    journal = EdgeJournal([1], "run", tmp_path, keeps_history=True)
    for t in range(30):
        if t == 10:
            journal.write_skip(10, 14)
        if not 10 <= t < 14:
            journal.write(1, t, "up" if t % 3 else "down")
        if t % 5 == 4:
            journal.rotate(t, t - 5, t - 5)
    assert len(journal.votes[1].runs) < 10
    journal.close()
    history = journal.read_history()
    states = {t: "down" if 10 <= t < 14 or t % 3 == 0 else "up" for t in range(30)}
    assert history[1] == states and [t for t, v in history[-1].items() if v] == [10, 11, 12, 13]


@pytest.mark.parametrize(
    ("text", "wanted"), [(2, Deadline(2.0)), ("1.5 median", Deadline(1.5, True))]
)
def test_a_deadline_is_seconds_or_medians(text, wanted):
    assert parse_deadline(text) == wanted


@pytest.mark.parametrize("text", ["0.5 median", "median", -1, 0, "soon", float("inf")])
def test_other_deadlines_are_refused(text):
    with pytest.raises(ValueError, match="neither a number of seconds nor text"):
        parse_deadline(text)
