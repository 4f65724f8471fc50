"""Going on without a neighbour: both ends agree on every edge, and nothing is lost or invented."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from leaving import FOREVER, LABOUR, LIMITS, PATH, ROUNDS, Town, team

from diamond.peers import wire_format
from diamond.peers.edge_journal import DOWN, UP, YES, EdgeJournal, VoteLog
from diamond.peers.handshake import differing, digest


def sound(town):
    """Run; every round's matrix is symmetric and doubly stochastic, and sum u = sum p in each."""
    found, nodes = town.run()
    assert [progress.t for progress in found] == [ROUNDS] * len(found)
    for t in range(ROUNDS):
        matrix = town.matrix(t)
        np.testing.assert_array_equal(matrix, matrix.T)
        np.testing.assert_allclose(matrix.sum(0), 1, atol=1e-14)
        assert (matrix >= 0).all()
        states = [town.states[i, t].state for i in range(len(found))]
        if states[0].u is not None:
            u, p = (sum(getattr(state, name) for state in states) for name in "up")
            np.testing.assert_allclose(u, p, rtol=0, atol=1e-12 * max(1, np.abs(p).max()))
    return found, nodes


def downs(town, i, j):
    """The rounds in which that edge was down."""
    return [t for t in range(ROUNDS) if not town.used[i, t][j]]


@pytest.mark.parametrize("order", ["paper", "atc"])
def test_while_nobody_is_away_it_is_the_run_that_waits(tmp_path, order):
    from helpers import same_bits
    from peering import lockstep

    town = Town(tmp_path, order=order)
    found, _ = sound(town)
    assert all(same_bits(a, b) for a, b in zip(found, lockstep(town.team, ROUNDS), strict=True))


@pytest.mark.parametrize("victim", [0, 1, 3])
@pytest.mark.parametrize("order", ["paper", "atc"])
def test_one_that_dies_for_good_holds_the_others_up_once(tmp_path, victim, order):
    town = Town(tmp_path, away=[(victim, 3.5, FOREVER)], order=order)
    sound(town)
    others = [i for i in range(4) if i != victim]
    assert max(town.ended[i] for i in others) < (ROUNDS + 2) * LABOUR + LIMITS.round
    left, right = (victim - 1) % 4, (victim + 1) % 4
    missed = list(range(4 if order == "paper" else 3, ROUNDS))
    assert downs(town, victim, left) == downs(town, victim, right) == missed
    assert downs(town, (victim + 2) % 4, left) == []


@pytest.mark.parametrize("victim", [0, 2])
def test_one_that_returns_catches_up_and_is_heard_again(tmp_path, victim):
    town = Town(tmp_path, away=[(victim, 3.5, 10.5)])
    sound(town)
    missed = downs(town, victim, (victim + 1) % 4)
    assert missed and missed == list(range(4, 4 + len(missed))) and missed[-1] < ROUNDS - 2


def test_one_that_returns_learns_of_all_rounds_it_has_missed_at_once(tmp_path):
    asked = []

    async def hop(hop, content):
        header, _ = wire_format.unpack(content, 2**20) if not hop.back else ({}, b"")
        if hop.sender == 0 and header.get("kind") == "ask":
            asked.append((hop.receiver, header["round"]))
        return content

    town = Town(tmp_path, away=[(0, 3.5, 10.5)])
    town.wire.faults = (hop,)
    sound(town)
    missed = downs(town, 0, 1)
    questions = [t for j, t in asked if j == 1 and t in missed]
    assert len(missed) >= 3 and len(set(questions)) == 1


def test_a_link_that_flaps_is_up_and_down_at_both_ends(tmp_path):
    town = Town(tmp_path, cut=[(0, 1, 2.5, 8.5), (0, 1, 9.2, 15.5)])
    sound(town)
    down = downs(town, 0, 1)
    assert 2 <= len(down) <= ROUNDS - 4 and down[-1] - down[0] >= len(down)  # up in between
    assert all(downs(town, i, j) == [] for i, j in [(1, 2), (2, 3), (0, 3)])


def test_two_neighbours_both_away_do_not_need_each_other(tmp_path):
    town = Town(tmp_path, away=[(0, 3.5, FOREVER), (1, 3.5, FOREVER / 2)])
    sound(town)
    assert town.ended[1] < FOREVER and downs(town, 0, 1) == list(range(4, ROUNDS))


def test_one_that_is_never_there_is_done_without(tmp_path):
    town = Town(tmp_path, away=[(2, 0.0, FOREVER)])
    sound(town)
    assert downs(town, 2, 1) == downs(town, 2, 3) == list(range(ROUNDS))


def test_one_that_is_slow_but_answers_is_waited_for(tmp_path, monkeypatch):
    town = Town(tmp_path, network=PATH)
    monkeypatch.setattr("leaving.LABOUR", 3 * LIMITS.round)
    sound(town)
    assert downs(town, 0, 1) == downs(town, 1, 2) == []


@pytest.mark.parametrize("victim", [0, 1, 2])
def test_killed_at_any_instant_of_an_exchange_and_back_or_not(tmp_path, victim):
    held = 0
    for n in range(12):
        away = [(victim, 4 * LABOUR + n * 0.001, FOREVER)]
        town = Town(tmp_path / str(n), network=PATH, away=away)
        sound(town)
        late = [i for i in range(3) if i != victim and town.ended[i] >= FOREVER]
        followers = [j for j in (victim - 1, victim + 1) if j > victim and j < 3]
        assert set(late) <= set(followers)  # it had said yes, and only the victim knew what then
        held += len(late)
    assert held <= 4  # the flight of a request, at 1 ms each way


def test_cut_off_at_any_instant_of_an_exchange(tmp_path):
    held = 0
    for n in range(12):
        begin = 4 * LABOUR + n * 0.001
        town = Town(tmp_path / str(n), network=PATH, cut=[(0, 1, begin, begin + 5 * LIMITS.round)])
        sound(town)
        held += town.ended[1] > begin + 5 * LIMITS.round
        assert downs(town, 0, 1) and town.ended[2] < begin + 4 * LIMITS.round
    assert 1 <= held <= 4


@pytest.mark.parametrize("liar", [0, 2])
def test_one_whose_messages_are_not_finite_is_done_without_at_once(tmp_path, caplog, liar):
    def spoil(frames):
        """A sound frame of the same message, with a number that is not finite."""
        header, content = wire_format.unpack(frames, 2**20)
        numbers = np.frombuffer(content, float).copy()
        numbers[0] = np.nan
        return wire_format.pack(header, numbers.tobytes())

    async def hop(hop, content):
        message = hop.back and hop.receiver == liar and len(content) > 200
        return spoil(content) if message and b"arrays" in bytes(content) else content

    town = Town(tmp_path)
    town.wire.faults = (hop,)
    sound(town)
    assert max(town.ended.values()) < (ROUNDS + 2) * LABOUR  # nobody waits for what cannot come
    left, right = (liar - 1) % 4, (liar + 1) % 4
    assert downs(town, liar, left) == downs(town, liar, right) == list(range(ROUNDS))
    assert downs(town, (liar + 2) % 4, left) == []
    said = f"agent {liar}: its message of round 3 has numbers that are not finite"
    assert said in caplog.text


TIMES = st.floats(0, 14).map(lambda time: round(time, 4))
PAUSES = st.sampled_from([0.002, 0.3, 2.0, 5.0, 9.0, FOREVER])
AWAY = st.tuples(st.integers(0, 3), TIMES, PAUSES).map(lambda a: (a[0], a[1], a[1] + a[2]))
CUT = st.tuples(st.integers(0, 3), TIMES, PAUSES).map(
    lambda c: (c[0], (c[0] + 1) % 4, c[1], c[1] + c[2])
)


def agree(folder, away, cut, name="gt_sgd"):
    away = [one for n, one in enumerate(away) if one[0] not in {a[0] for a in away[:n]}]
    sound(Town(folder, away=away, cut=cut, name=name))


RANDOM = dict(away=st.lists(AWAY, max_size=4), cut=st.lists(CUT, max_size=4))
CALM = dict(deadline=None, derandomize=True, database=None)


@settings(max_examples=10, **CALM)
@given(**RANDOM)
def test_whatever_happens_both_ends_agree(tmp_path_factory, away, cut):
    agree(tmp_path_factory.mktemp("town"), away, cut)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["diamond", "dsgd"])
@settings(max_examples=40, **CALM)
@given(**RANDOM)
def test_whatever_happens_to_other_algorithms(tmp_path_factory, name, away, cut):
    agree(tmp_path_factory.mktemp("town"), away, cut, name)


def test_ends_of_different_minds_refuse_each_other():
    parts = (digest(team(PATH)[i], 9, missing) for i, missing in enumerate(("wait", "continue")))
    assert differing(*parts) == "another missing (wait here, continue there)"


def test_a_word_once_given_is_kept(tmp_path):
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
        assert [again.word(1, t) for t in range(3)] == [UP, YES, ""]
        assert again.word(2, 0) == DOWN and again.heard == {(1, 0): b"message"}
        again.close()
    journal.close()


def test_the_ledger_forgets_what_nobody_can_be_set_back_to(tmp_path):
    journal = EdgeJournal([1], "run", tmp_path)
    for t in range(100):
        journal.write(1, t, UP if t % 10 else DOWN, b"m")
        if t % 5 == 4:
            journal.turn(t + 1, safe=max(0, t - 4), wanted=max(0, t - 20))
    journal.close()
    assert len(list(tmp_path.iterdir())) == 2 and len(journal.words[1].runs) <= 8
    again = EdgeJournal([1], "run", tmp_path)
    again.restore(96)
    words = [again.word(1, t) for t in range(80, 101)]
    assert words == [UP if t % 10 else DOWN for t in range(80, 100)] + [""]
    assert list(again.heard) == [(1, t) for t in range(96, 100)]
    again.close()


def test_words_are_kept_as_runs():
    words = VoteLog()
    for t in range(1000):
        words.put(t, DOWN if 300 <= t < 700 else UP)
    assert words.runs == [(0, UP), (300, DOWN), (700, UP)]
    words.put(1005, UP)
    assert [words.get(t) for t in (0, 299, 300, 699, 999, 1000, 1004, 1005, 1006)] == [
        *(UP, UP, DOWN, DOWN, UP, "", "", UP, "")
    ]
