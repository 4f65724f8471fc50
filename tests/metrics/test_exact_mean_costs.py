"""What exact means cost, counted by hand."""

import networkx as nx
import numpy as np
import pytest
from exact_mean_method import MeanMethod
from fast_compilation import skip_loss_checks, skip_measures
from helpers import quad

import diamond
from diamond.network import changing, one_way_ring, path, ring
from diamond.network.channels import drops
from diamond.network.spanning_tree import mean_steps

SIZE = 3 * 8 + 2 * 4  # bytes of a gradient in double precision and of two counts


@pytest.fixture(autouse=True)
def without_measures(monkeypatch):
    skip_loss_checks(monkeypatch)
    skip_measures(monkeypatch)


def run_of(network, kind="mean", rounds=5):
    return diamond.simulate(quad(), network, MeanMethod(0.1, kind), rounds, every=2)


def test_a_mean_is_a_message_up_and_down_every_edge_of_the_tree():
    """Ring of four: the edge (2, 3) is not in the tree."""
    run = run_of(ring(4))
    np.testing.assert_array_equal(run.history["bytes"], 6 * SIZE * np.array([0, 2, 4, 5]))
    assert run.messages == 5 * 6
    used = {edge for edge, count in run.traffic.items() if count}
    assert len(used) == 3 and {run.traffic[edge] for edge in used} == {2 * 5 * SIZE}


@pytest.mark.wide
def test_gossip_and_means_are_added():
    """Two exchanges of x with all neighbours, and one mean."""
    run = run_of(path(4), "around")
    assert run.history["bytes"][-1] == 5 * (2 * 6 * 24 + 6 * SIZE)
    assert run.messages == 5 * (2 * 6 + 6)


def test_lost_messages_are_sent_again():
    run = run_of(path(4).through(drops(0.5)))
    assert run.messages == 2 * 5 * 6 and run.history["bytes"][-1] == 2 * 5 * 6 * SIZE
    assert drops(0.25, burst=4).tries == 2


def test_steps_follow_one_another_on_links():
    """Path 0 - 1 - 2 - 3 with root 1: 3 to 2 and 0 to 1, 2 to 1, 1 to 0 and 2, 2 to 3."""
    assert mean_steps(path(4)) == [[(3, 2), (0, 1)], [(2, 1)], [(1, 0), (1, 2)], [(2, 3)]]
    once = 0.02 + 8 * SIZE / 1e4
    links = {"rate": 1e4, "latency": 0.02, "compute": 0.5, "joules_per_bit": 1e-6}
    run = run_of(path(4).with_links(**links))
    assert run.history["network_seconds"][-1] == pytest.approx(5 * (0.5 + 4 * once))
    assert run.history["joules"][-1] == pytest.approx(8e-6 * run.history["bytes"][-1])
    # One of two links at agent 1 waits for the other.
    run = run_of(path(4).with_links(**links, half_duplex=True))
    assert run.history["network_seconds"][-1] == pytest.approx(5 * (0.5 + 5 * once))


def test_messages_wait_for_links_of_a_changing_network():
    first, second = nx.Graph([(0, 1), (2, 3)]), nx.path_graph(4)
    steps = mean_steps(changing([first, second]), 0)
    assert steps == [[(3, 2), (0, 1)], [(2, 1)], [(1, 0)], [(1, 2)], [(2, 3)]]
    assert mean_steps(one_way_ring(3))[0] == [(1, 2)]
