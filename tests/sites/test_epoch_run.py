"""Sites that join and leave, in one process: the bits of the simulation, with kills or without."""

import pytest
from changing_cluster import ChangingCluster, check_bits, check_sums
from lockstep_agents import build_algorithm

SLOW = pytest.mark.slow


@pytest.mark.wide
@pytest.mark.parametrize(
    ("name", "order"), [("diamond", "atc"), pytest.param("dsgd", None, marks=SLOW)]
)
def test_sites_give_the_bits_of_the_simulation(tmp_path, name, order):
    cluster = ChangingCluster(tmp_path, build_algorithm(name, order=order))
    found = cluster.run()
    assert [p.t for p in found] == [13, 9, 18, 18, 18, 18]
    check_bits(cluster, found)
    if name == "diamond":
        check_sums(cluster)


@pytest.mark.wide
def test_kills_around_every_change_leave_the_bits_as_they_are(tmp_path):
    kills = [(0, 3), (1, 4), (4, 4), (2, 4), (3, 5), (1, 9), (0, 9), (4, 9), (2, 11), (5, 13)]
    kills += [(0, 13), (3, 13), (3, 14), (5, 16), (2, 18)]
    cluster = ChangingCluster(tmp_path, build_algorithm("gt_sgd"), kills=kills)
    found = cluster.run()
    assert cluster.deaths == len(kills) and not cluster.kills
    check_bits(cluster, found)
    check_sums(cluster)
