"""Members that change while rounds go on without absent or late sites."""

import json
import random

import pytest
from absent_members import FOREVER, AbsentMembers
from changing_cluster import ROUNDS, check_bits
from test_roster_acceptance import JOIN, LEAVE

import diamond
from diamond.privacy.ledger import LEDGER_FILE, write_genesis

BOTH = {(2, 3): 2, (0, 9): 3}  # a roster given to agent 2 in round 3, the next to 0 in round 9
MODES = pytest.mark.parametrize("deadline", [None, 7.5])


@pytest.mark.wide(keep=["None"])
@MODES
def test_without_absences_the_bits_are_those_of_the_simulation(tmp_path, deadline):
    cluster = AbsentMembers(tmp_path, deadline=deadline, deliveries=dict(BOTH))
    found = cluster.run()
    assert [p.t for p in found] == [ROUNDS, LEAVE, ROUNDS, ROUNDS, ROUNDS]
    check_bits(cluster, found)
    cluster.check(found)


@pytest.mark.wide(keep=["1-7.5"])
@MODES
@pytest.mark.parametrize("victim", [1, 3])
def test_a_site_that_was_down_at_the_change_catches_up(tmp_path, deadline, victim):
    absences = [(victim, 10.5, 28.8)]
    cluster = AbsentMembers(tmp_path, absences, deadline=deadline, deliveries={(2, 4): 2})
    found = cluster.run()
    cluster.check(found)
    assert [p.t for p in found] == [ROUNDS] * 5 and cluster.deaths == 1
    assert cluster.epochs_of[victim][1] == (JOIN, JOIN)  # it runs the missed rounds alone
    ups = [t for t, vote in cluster.votes[JOIN, victim, (victim + 1) % 5].items() if vote == "up"]
    assert ups and max(ups) == ROUNDS - 1


CUT_OFF = [(3, j, 7.5, 40.5) for j in (0, 2, 4)]
PARTITION = [(i, j, 7.5, 49.5) for i in (0, 1) for j in (2, 3, 4)]


@pytest.mark.wide(keep=["None"])
@MODES
def test_a_site_that_has_begun_the_round_of_a_change_alone_follows_late(tmp_path, deadline):
    cluster = AbsentMembers(tmp_path, cuts=CUT_OFF, deadline=deadline, deliveries={(2, 3): 2})
    found = cluster.run()
    cluster.check(found)
    assert [p.t for p in found] == [ROUNDS] * 5
    first, entered = cluster.epochs_of[3][1]
    assert first == JOIN < entered < ROUNDS
    for j in (2, 4):
        votes = cluster.votes[JOIN, 3, j]
        assert {votes[t] for t in range(JOIN, entered)} == {"down"}
        assert votes[ROUNDS - 1] == "up"


@pytest.mark.wide(keep=["7.5"])
@MODES
def test_half_of_the_sites_miss_two_changes(tmp_path, deadline):
    """Agents 0 and 1 run on together; agent 1 has left meanwhile, agent 0 skips an epoch."""
    deliveries = {(2, 3): 2, (3, 9): 3}
    cluster = AbsentMembers(tmp_path, cuts=PARTITION, deadline=deadline, deliveries=deliveries)
    found = cluster.run()
    cluster.check(found)
    assert LEAVE < found[1].t < ROUNDS and [p.t for p in found if p is not found[1]] == [ROUNDS] * 4
    assert [first for first, _ in cluster.epochs_of[0]] == [0, LEAVE]
    assert cluster.epochs_of[0][1][1] > LEAVE
    assert cluster.votes[LEAVE, 0, 2][ROUNDS - 1] == cluster.votes[LEAVE, 0, 4][ROUNDS - 1] == "up"


@pytest.mark.wide(keep=["26.5"])
@pytest.mark.parametrize("killed", [26.5, 38.5])
def test_a_site_that_gets_the_files_of_a_past_change_while_it_is_down(tmp_path, killed):
    """It has sent messages of rounds that the new members have too; its checkpoint may be older."""
    cuts = [(i, j, begin, 47.5) for i, j, begin, _ in CUT_OFF]
    fixed = {"absences": [(3, killed, killed + 1)], "cuts": cuts, "given": {3: 2}}
    cluster = AbsentMembers(tmp_path, **fixed, deliveries={(2, 3): 2})
    found = cluster.run()
    cluster.check(found)
    begun = {26.5: 9, 38.5: 13}[killed]
    assert cluster.deaths == 1 and cluster.epochs_of[3][-1] == (JOIN, begun)
    assert cluster.votes[JOIN, 3, 2][ROUNDS - 1] == "up"


def test_a_site_that_only_a_lost_one_could_release_is_released_when_that_one_leaves(tmp_path):
    absences = [(1, 12.009, FOREVER)]  # between the yes of agent 2 and the decision of agent 1
    cluster = AbsentMembers(tmp_path, absences, deliveries={(2, 2): 2, (3, 9): 3})
    found = cluster.run()
    cluster.check(found, repaired=[0])  # what agent 1 has decided is lost
    assert 2 in cluster.were_stuck and [p.t for p in found if p] == [ROUNDS] * 4


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(18))
def test_random_absences_and_cuts_leave_one_roster(tmp_path, seed):
    generator = random.Random(seed)
    absences, cuts = [], []
    for victim in generator.sample(range(5), generator.randint(1, 3)):
        begin = generator.uniform(0, 45)
        absences.append((victim, begin, begin + generator.choice([0.5, 5, 15])))
    for _ in range(generator.randint(0, 3)):
        ends, begin = generator.sample(range(5), 2), generator.uniform(0, 40)
        cuts.append((*ends, begin, begin + generator.choice([0.5, 5, 20])))
    deadline, last = generator.choice([None, 7.5]), generator.choice([0, 3])
    fixed = {"deadline": deadline, "deliveries": {(2, 3): 2, (last, 9): 3}}
    cluster = AbsentMembers(tmp_path, absences, cuts, **fixed)
    found = cluster.run()
    cluster.check(found, repaired=[0, JOIN])
    assert [p.t for p in found] == [ROUNDS, LEAVE, ROUNDS, ROUNDS, ROUNDS]


class PrivateMembers(AbsentMembers):
    """Sites with ledgers of privacy."""

    def make(self, number):
        place = self.folder / f"ledger{number}"
        if not place.exists():
            place.mkdir()
            write_genesis(place, "trial", str(number))
        self.node_options["ledger_folder"] = place
        return super().make(number)


@pytest.mark.wide
def test_a_site_that_follows_late_charges_no_round_twice(tmp_path):
    pytest.importorskip("dp_accounting")
    plain = diamond.gt_sgd(alpha=0.05, beta=0.1, order="atc", batch=4)
    algorithm = diamond.private(plain, 3.0, clip=0.5, rounds=ROUNDS)
    fixed = {"algorithm": algorithm, "deliveries": {(2, 3): 2}}
    cluster = PrivateMembers(tmp_path, cuts=CUT_OFF, **fixed)
    cluster.check(cluster.run())
    lines = (tmp_path / "ledger3" / LEDGER_FILE).read_text().splitlines()
    rounds = [line["round"] for line in map(json.loads, lines) if "message" in line]
    assert rounds == [*range(ROUNDS)] and cluster.epochs_of[3][1][1] > JOIN
