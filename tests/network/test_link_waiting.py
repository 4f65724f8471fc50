"""What sites wait for on links, lost packets and requests, against closed forms and draws."""

import numpy as np
import pytest
from helpers import ring

from diamond.network import erdos_renyi, one_way_ring, path
from diamond.network.links.link_clock import PACKET, LinkClock, mean_resends, packets, resends
from diamond.network.links.link_properties import HEADERS


def test_how_often_the_unluckiest_packet_is_lost():
    random = np.random.default_rng(0)
    loss = np.array([0.0, 0.05, 0.4])
    for number in (1, 7):
        lost = random.geometric(1 - loss, (20_000, number, 3)) - 1
        found = resends(loss, number, random.random((20_000, 3)))
        for k in range(3):
            np.testing.assert_allclose((found > k).mean(0), (lost.max(1) > k).mean(0), atol=0.015)
        np.testing.assert_allclose(mean_resends(loss, number), lost.max(1).mean(0), atol=0.03)
    np.testing.assert_allclose(mean_resends(loss, 1), loss / (1 - loss), atol=1e-8)
    assert [packets(size) for size in (0, 1, PACKET, PACKET + 1)] == [1, 1, 1, 2]


def test_two_agents_that_wait_for_what_is_lost():
    link = dict(rate=1e5, latency=0.01, loss=0.2, compute=0.03)
    made, plain = path(2).with_links(**link, timeout=0.5), path(2).with_links(**link)
    size, rounds = 5 * PACKET, 1000
    mean = mean_resends(np.array([0.2]), 5)[0]
    found = LinkClock(made.links, [(size, False)], 3)
    waited = found.seconds(rounds) - LinkClock(plain.links, [(size, False)], 3).seconds(rounds)
    assert mean < waited / rounds / 0.5 < 2 * mean  # both send at once
    turns = [
        LinkClock(one.with_links(half_duplex=True).links, [(size, False)], 3)
        for one in (made, plain)
    ]
    late, calm = (clock.seconds(rounds) for clock in turns)
    assert (late - calm) / rounds / 0.5 == pytest.approx(2 * mean, rel=0.05)
    assert found.seconds(rounds) == LinkClock(made.links, [(size, False)], 3).seconds(rounds)
    assert found.seconds(rounds) != LinkClock(made.links, [(size, False)], 4).seconds(rounds)
    one = found.seconds(2, consensus_exchanges=4, consensus_bytes=4 * size) - found.seconds(2)
    each = plain.links.seconds(size)[0] + 0.5 * mean
    assert one == pytest.approx(4 * each)
    none = path(2).with_links(rate=1e5, timeout=0.5)
    assert LinkClock(none.links, [(size, True)], 0).seconds(10) == pytest.approx(80 * size / 1e5)


def test_what_is_asked_for_leaves_once_it_was_asked_for():
    """As an agent-by-agent recurrence says, early and not."""
    random, made = np.random.default_rng(1), erdos_renyi(6, p=0.5, seed=1)
    edges = len(made.edges)
    rate, latency = random.uniform(1e4, 1e5, edges), random.uniform(0, 0.1, edges)
    made = made.with_links(rate, latency, compute=random.uniform(0, 0.2, 6), pulled=True)
    cost = lambda count: latency + 8 * (count + HEADERS) / rate
    near = {
        i: [(a + b - i, e) for e, (a, b) in enumerate(made.edges) if i in (a, b)] for i in range(6)
    }
    exchanges = [(60, True), (90, False)]
    times, busy = np.zeros(6), made.links.compute / 2
    clock = LinkClock(made.links, exchanges, 0)
    for rounds in range(1, 12):
        for count, early in exchanges:
            leave = times if early else times + busy
            times = np.array(
                [
                    max(
                        times[i] + busy[i],
                        *(
                            max(leave[j], times[i] + cost(0)[e]) + cost(count)[e]
                            for j, e in near[i]
                        ),
                    )
                    for i in range(6)
                ]
            )
        assert clock.seconds(rounds) == pytest.approx(times.max(), rel=1e-10)
    turns = path(2).with_links(1e4, 0.1, pulled=True, half_duplex=True)
    both = 2 * (0.1 + 8 * HEADERS / 1e4 + 0.1 + 8 * (60 + HEADERS) / 1e4)
    assert LinkClock(turns.links, [(60, False)], 0).seconds(3) == pytest.approx(3 * both)


def test_links_that_wait_in_words_and_what_none_can_be():
    made = ring(3).with_links(1e6, loss=0.1, timeout={(0, 1): 0.2, "other": 0.3}, pulled=True)
    assert repr(made.links) == "1 Mbit/s, 0 s, loss 10 %, sent again after 200 to 300 ms, pulled"
    assert (
        ring(3).with_links(**made.links.to_options()).links.to_options() == made.links.to_options()
    )
    with pytest.raises(ValueError, match="timeout of link 0-1 is -1 s; it must be 0 or more"):
        ring(3).with_links(1e6, timeout=-1)
    with pytest.raises(ValueError, match="pulled is 1; it must be true or false"):
        ring(3).with_links(1e6, pulled=1)
    with pytest.raises(ValueError, match="asked for over their link, and these go one way"):
        one_way_ring(3).with_links(1e6, pulled=True)
