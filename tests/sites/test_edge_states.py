"""Rounds without absent neighbours: both ends agree on every edge, and trackers keep their sum."""

import numpy as np
import pytest
from absent_agents import FOREVER, LIMITS, PATH, ROUNDS, WORK_SECONDS, AbsenceScenario, team
from hypothesis import given, settings
from hypothesis import strategies as st

from diamond.sites.identity.handshake import compute_digests, describe_differences
from diamond.sites.memory.edge_journal import EdgeJournal, VoteLog
from diamond.sites.transport import wire_format
from diamond.sites.transport.messages import DOWN, UP, YES


def run_and_check(scenario):
    """Run; every round's matrix is symmetric and doubly stochastic, and sum u = sum p in each."""
    found, nodes = scenario.run()
    assert [progress.t for progress in found] == [ROUNDS] * len(found)
    for t in range(ROUNDS):
        matrix = scenario.matrix(t)
        np.testing.assert_array_equal(matrix, matrix.T)
        np.testing.assert_allclose(matrix.sum(0), 1, atol=1e-14)
        assert (matrix >= 0).all()
        states = [scenario.states[i, t].state for i in range(len(found))]
        if states[0].u is not None:
            u, p = (sum(getattr(state, name) for state in states) for name in "up")
            np.testing.assert_allclose(u, p, rtol=0, atol=1e-12 * max(1, np.abs(p).max()))
    return found, nodes


def down_rounds(scenario, i, j):
    """The rounds in which that edge was down."""
    return [t for t in range(ROUNDS) if not scenario.sources_used[i, t][j]]


@pytest.mark.wide
@pytest.mark.parametrize("order", ["paper", "atc"])
def test_without_absences_the_run_equals_one_that_waits(tmp_path, order):
    from helpers import same_bits
    from lockstep_agents import run_lockstep

    scenario = AbsenceScenario(tmp_path, order=order)
    found, _ = run_and_check(scenario)
    assert all(
        same_bits(a, b) for a, b in zip(found, run_lockstep(scenario.team, ROUNDS), strict=True)
    )


@pytest.mark.wide
@pytest.mark.parametrize("victim", [0, 1, 3])
@pytest.mark.parametrize("order", ["paper", "atc"])
def test_a_permanent_crash_delays_the_others_once(tmp_path, victim, order):
    scenario = AbsenceScenario(tmp_path, absences=[(victim, 3.5, FOREVER)], order=order)
    run_and_check(scenario)
    others = [i for i in range(4) if i != victim]
    assert max(scenario.end_times[i] for i in others) < (ROUNDS + 2) * WORK_SECONDS + LIMITS.round
    left, right = (victim - 1) % 4, (victim + 1) % 4
    missed = list(range(4 if order == "paper" else 3, ROUNDS))
    assert down_rounds(scenario, victim, left) == down_rounds(scenario, victim, right) == missed
    assert down_rounds(scenario, (victim + 2) % 4, left) == []


@pytest.mark.wide
@pytest.mark.parametrize("victim", [0, 2])
def test_a_returning_agent_catches_up_and_takes_part_again(tmp_path, victim):
    scenario = AbsenceScenario(tmp_path, absences=[(victim, 3.5, 10.5)])
    run_and_check(scenario)
    missed = down_rounds(scenario, victim, (victim + 1) % 4)
    assert missed and missed == list(range(4, 4 + len(missed))) and missed[-1] < ROUNDS - 2


@pytest.mark.wide
def test_a_returning_agent_gets_all_missed_rounds_in_one_response(tmp_path):
    asked = []

    async def hop(hop, content):
        header, _ = wire_format.unpack(content, 2**20) if not hop.is_response else ({}, b"")
        if hop.sender == 0 and header.get("kind") == "ask":
            asked.append((hop.receiver, header["round"]))
        return content

    scenario = AbsenceScenario(tmp_path, absences=[(0, 3.5, 10.5)])
    scenario.wire.faults = (hop,)
    run_and_check(scenario)
    missed = down_rounds(scenario, 0, 1)
    questions = [t for j, t in asked if j == 1 and t in missed]
    assert len(missed) >= 3 and len(set(questions)) == 1


def test_a_link_that_flaps_is_up_and_down_at_both_ends(tmp_path):
    scenario = AbsenceScenario(tmp_path, cuts=[(0, 1, 2.5, 8.5), (0, 1, 9.2, 15.5)])
    run_and_check(scenario)
    down = down_rounds(scenario, 0, 1)
    assert 2 <= len(down) <= ROUNDS - 4 and down[-1] - down[0] >= len(down)  # up in between
    assert all(down_rounds(scenario, i, j) == [] for i, j in [(1, 2), (2, 3), (0, 3)])


def test_two_absent_neighbours_do_not_need_each_other(tmp_path):
    scenario = AbsenceScenario(tmp_path, absences=[(0, 3.5, FOREVER), (1, 3.5, FOREVER / 2)])
    run_and_check(scenario)
    assert scenario.end_times[1] < FOREVER and down_rounds(scenario, 0, 1) == list(range(4, ROUNDS))


def test_rounds_continue_without_an_agent_that_never_starts(tmp_path):
    scenario = AbsenceScenario(tmp_path, absences=[(2, 0.0, FOREVER)])
    run_and_check(scenario)
    assert down_rounds(scenario, 2, 1) == down_rounds(scenario, 2, 3) == list(range(ROUNDS))


def test_a_slow_agent_that_answers_is_awaited(tmp_path, monkeypatch):
    scenario = AbsenceScenario(tmp_path, network=PATH)
    monkeypatch.setattr("absent_agents.WORK_SECONDS", 3 * LIMITS.round)
    run_and_check(scenario)
    assert down_rounds(scenario, 0, 1) == down_rounds(scenario, 1, 2) == []


@pytest.mark.wide
@pytest.mark.parametrize("victim", [0, 1, 2])
def test_killed_at_any_instant_of_an_exchange_and_back_or_not(tmp_path, victim):
    held = 0
    for n in range(12):
        absences = [(victim, 4 * WORK_SECONDS + n * 0.001, FOREVER)]
        scenario = AbsenceScenario(tmp_path / str(n), network=PATH, absences=absences)
        run_and_check(scenario)
        late = [i for i in range(3) if i != victim and scenario.end_times[i] >= FOREVER]
        followers = [j for j in (victim - 1, victim + 1) if j > victim and j < 3]
        assert set(late) <= set(followers)  # it had said yes, and only the victim knew what then
        held += len(late)
    assert held <= 4  # the flight of a request, at 1 ms each way


def test_cut_off_at_any_instant_of_an_exchange(tmp_path):
    held = 0
    for n in range(12):
        begin = 4 * WORK_SECONDS + n * 0.001
        scenario = AbsenceScenario(
            tmp_path / str(n), network=PATH, cuts=[(0, 1, begin, begin + 5 * LIMITS.round)]
        )
        run_and_check(scenario)
        held += scenario.end_times[1] > begin + 5 * LIMITS.round
        assert down_rounds(scenario, 0, 1) and scenario.end_times[2] < begin + 4 * LIMITS.round
    assert 1 <= held <= 4


@pytest.mark.parametrize("liar", [0, 2])
def test_messages_that_are_not_finite_are_not_used_at_both_ends(tmp_path, caplog, liar):
    def spoil(frames):
        """A sound frame of the same message, with a number that is not finite."""
        header, content = wire_format.unpack(frames, 2**20)
        numbers = np.frombuffer(content, float).copy()
        numbers[0] = np.nan
        return wire_format.pack(header, numbers.tobytes())

    async def hop(hop, content):
        message = hop.is_response and hop.receiver == liar and len(content) > 200
        return spoil(content) if message and b"arrays" in bytes(content) else content

    scenario = AbsenceScenario(tmp_path)
    scenario.wire.faults = (hop,)
    run_and_check(scenario)
    assert (
        max(scenario.end_times.values()) < (ROUNDS + 2) * WORK_SECONDS
    )  # nobody waits for what cannot come
    left, right = (liar - 1) % 4, (liar + 1) % 4
    assert (
        down_rounds(scenario, liar, left)
        == down_rounds(scenario, liar, right)
        == list(range(ROUNDS))
    )
    assert down_rounds(scenario, (liar + 2) % 4, left) == []
    message = f"agent {liar}: its message of round 3 has numbers that are not finite"
    assert message in caplog.text


TIMES = st.floats(0, 14).map(lambda time: round(time, 4))
PAUSES = st.sampled_from([0.002, 0.3, 2.0, 5.0, 9.0, FOREVER])
AWAY = st.tuples(st.integers(0, 3), TIMES, PAUSES).map(lambda a: (a[0], a[1], a[1] + a[2]))
CUT = st.tuples(st.integers(0, 3), TIMES, PAUSES).map(
    lambda c: (c[0], (c[0] + 1) % 4, c[1], c[1] + c[2])
)


def agree(folder, absences, cuts, name="gt_sgd"):
    absences = [one for n, one in enumerate(absences) if one[0] not in {a[0] for a in absences[:n]}]
    run_and_check(AbsenceScenario(folder, absences=absences, cuts=cuts, name=name))


RANDOM = dict(absences=st.lists(AWAY, max_size=4), cuts=st.lists(CUT, max_size=4))
SETTINGS = dict(deadline=None, derandomize=True, database=None)


@pytest.mark.wide
@settings(max_examples=10, **SETTINGS)
@given(**RANDOM)
def test_whatever_happens_both_ends_agree(tmp_path_factory, absences, cuts):
    agree(tmp_path_factory.mktemp("town"), absences, cuts)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["diamond", "dsgd"])
@settings(max_examples=40, **SETTINGS)
@given(**RANDOM)
def test_whatever_happens_to_other_algorithms(tmp_path_factory, name, absences, cuts):
    agree(tmp_path_factory.mktemp("town"), absences, cuts, name)


def test_agents_with_different_missing_policies_refuse_each_other():
    parts = (
        compute_digests(team(PATH)[i], 9, missing) for i, missing in enumerate(("wait", "continue"))
    )
    assert describe_differences(*parts) == "another missing (wait here, continue there)"


def test_a_vote_is_durable(tmp_path):
    journal = EdgeJournal([1, 2], "run", tmp_path)
    journal.write(1, 0, UP, b"message")
    journal.write(2, 0, YES)
    journal.write(2, 0, DOWN)
    journal.write(1, 1, YES)
    with pytest.raises(ValueError, match="round 0 is up, it cannot become down"):
        journal.write(1, 0, DOWN)
    path = tmp_path / "0000000000.log"
    whole = path.read_bytes()
    for cut in range(3):
        path.write_bytes(whole + whole[: 5 * cut])  # torn while the next one was written
        again = EdgeJournal([1, 2], "run", tmp_path)
        again.restore(0)
        assert [again.edge_vote(1, t) for t in range(3)] == [UP, YES, ""]
        assert again.edge_vote(2, 0) == DOWN and again.messages == {(1, 0): b"message"}
        again.close()
    journal.close()


def test_the_journal_discards_rounds_that_nobody_needs(tmp_path):
    journal = EdgeJournal([1], "run", tmp_path)
    for t in range(100):
        journal.write(1, t, UP if t % 10 else DOWN, b"m")
        if t % 5 == 4:
            journal.rotate(t + 1, safe=max(0, t - 4), needed=max(0, t - 20))
    journal.close()
    assert len(list(tmp_path.iterdir())) == 2 and len(journal.votes[1].runs) <= 8
    again = EdgeJournal([1], "run", tmp_path)
    again.restore(96)
    votes = [again.edge_vote(1, t) for t in range(80, 101)]
    assert votes == [UP if t % 10 else DOWN for t in range(80, 100)] + [""]
    assert list(again.messages) == [(1, t) for t in range(96, 100)]
    again.close()


def test_votes_are_run_length_encoded():
    votes = VoteLog()
    for t in range(1000):
        votes.set_vote(t, DOWN if 300 <= t < 700 else UP)
    assert votes.runs == [(0, UP), (300, DOWN), (700, UP)]
    votes.set_vote(1005, UP)
    assert [votes.get(t) for t in (0, 299, 300, 699, 999, 1000, 1004, 1005, 1006)] == [
        *(UP, UP, DOWN, DOWN, UP, "", "", UP, "")
    ]
