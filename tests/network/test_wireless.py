"""Wireless networks: who is in range, and what distance makes of a link."""

import math

import numpy as np
import pytest

from diamond.network import wireless
from diamond.network.network_summary import draw

LINE = [(0.0, 0.0), (0.3, 0.4), (0.3, 0.45), (1.0, 0.4)]  # 0.5, 0.05 and 0.7 apart, and beyond


def test_links_follow_the_formulas():
    made = wireless(
        positions=LINE, radius=0.9, bandwidth=2e6, snr=20, reference=0.1, exponent=2, threshold=3
    )
    assert made.edges == [(0, 1), (0, 2), (1, 2), (1, 3), (2, 3)]
    for (i, j), rate, loss in zip(made.edges, made.links.rate, made.links.loss):
        distance = max(math.dist(LINE[i], LINE[j]), 0.1)
        snr = 100 * (0.1 / distance) ** 2
        assert rate == pytest.approx(2e6 * math.log2(1 + snr), rel=1e-12)
        assert loss == pytest.approx(1 - math.exp(-(10**0.3) / snr), rel=1e-12)
    assert made.links.rate[2] == pytest.approx(2e6 * math.log2(101))  # nearer than the reference


def test_fading_loses_as_many_packets_as_it_says():
    made = wireless(positions=[(0, 0), (0, 0.4)], radius=0.5, snr=15, exponent=3, threshold=2)
    power = np.random.default_rng(0).exponential(size=200_000)  # of Rayleigh amplitudes
    snr = 10**1.5 * 4.0**-3
    assert made.links.loss[0] == pytest.approx(np.mean(power * snr < 10**0.2), abs=0.005)


def test_random_places_are_drawn_until_connected_and_again_the_same():
    made, again, other = wireless(20, 0.35), wireless(20, 0.35), wireless(20, 0.35, seed=1)
    places = [place for _, place in made.graph.nodes(data="pos")]
    assert made.edges == again.edges != other.edges
    for i in range(20):
        for j in range(i):
            assert ((j, i) in made.edges) == (math.dist(places[i], places[j]) < 0.35)
    assert wireless(20, 0.25, seed=1).draws > 1
    links = made.with_links(latency=0.005, shared_medium=True).links
    assert np.array_equal(links.rate, made.links.rate) and np.array_equal(
        links.loss, made.links.loss
    )
    with pytest.raises(ValueError, match="none of 1000 draws"):
        wireless(20, 0.01)


def test_it_is_drawn_where_the_agents_are(tmp_path):
    pytest.importorskip("matplotlib")
    assert draw(wireless(positions=LINE, radius=0.9), tmp_path / "w.png").stat().st_size > 1000


@pytest.mark.parametrize(
    "options, message",
    [
        ({}, "wireless needs agents, how many, or positions"),
        ({"agents": 5, "radius": 0}, "radius is 0; it must be a positive distance"),
        ({"agents": 5, "bandwidth": 0}, "bandwidth is 0; it must be above 0"),
        ({"agents": 5, "exponent": -1}, "exponent is -1; it must be above 0"),
        ({"agents": 5, "snr": math.nan}, "snr is nan; it must be a finite number of decibels"),
        ({"positions": [1, 2]}, "positions must be one pair"),
        ({"positions": [(0, 0, 0)]}, "positions must be one pair"),
        ({"agents": 5, "positions": LINE}, "there are 4 positions for 5 agents; give one each"),
        ({"positions": LINE, "radius": 0.1}, "the graph has 3 components"),
    ],
)
def test_what_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        wireless(**options)
