"""Seconds and joules on links, against closed forms and a recurrence written out."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from fast_compilation import skip_measures
from helpers import ESTIMATORS, build, quad, ring

import diamond
from diamond.engine.many_runs import simulate_many
from diamond.network import complete, path, star
from diamond.network.links.link_clock import LinkClock
from diamond.network.links.link_properties import update_links

CHAIN = ESTIMATORS["neumann_sum"]
SIZE = 3 * 8  # bytes of x in the quadratic problem


def clock(network, *exchanges, seed=0):
    return LinkClock(network.links, exchanges, seed)


def test_two_agents_and_one_link():
    made = path(2).with_links(rate=1e4, latency=0.01, loss=0.2, compute=0.5)
    once = 0.01 + 8 * 100 / 1e4 / 0.8
    for rounds in (0, 1, 7, 1000):
        late, early = clock(made, (100, False)), clock(made, (100, True))
        assert late.seconds(rounds) == pytest.approx(rounds * (once + 0.5))
        assert early.seconds(rounds) == pytest.approx(rounds * max(once, 0.5))
    both = clock(made, (100, False), (100, False))
    assert both.seconds(9) == pytest.approx(9 * (2 * once + 0.5))
    consensus_exchanges = clock(made, (100, False)).seconds(
        9, consensus_exchanges=4, consensus_bytes=80
    )
    assert consensus_exchanges == pytest.approx(9 * (once + 0.5) + 4 * (0.01 + 8 * 20 / 1e4 / 0.8))


def test_a_star_that_takes_turns():
    """The hub serves its leaves one after another; there is nobody else, so the medium is no
    matter."""
    leaves, once = 5, 0.02 + 8 * 50 / 1e3
    open_, half, shared = (
        star(1 + leaves).with_links(1e3, 0.02, **turns)
        for turns in ({}, {"half_duplex": True}, {"shared_medium": True})
    )
    assert clock(open_, (50, False)).seconds(10) == pytest.approx(10 * once)
    for made in (half, shared):
        assert clock(made, (50, False)).seconds(10) == pytest.approx(10 * 2 * leaves * once)


def test_slow_agents_of_every_block_of_rounds_are_drawn_apart():
    """Blocks are drawn by their number, in any order, and each agent is slow as often as asked."""
    made = ring(5).with_links(1e4, compute=0.1, slow_chance=0.2, slow_factor=10)
    one, other = (clock(made, (100, False), seed=seed) for seed in (0, 1))
    blocks = [one._draw_slowdowns(block).copy() for block in range(3)]
    assert not any(np.array_equal(blocks[a], blocks[b]) for a, b in ((0, 1), (0, 2), (1, 2)))
    assert np.array_equal(one._draw_slowdowns(0), blocks[0])
    assert np.array_equal(one._slowdowns(2048), blocks[2][0])
    assert not np.array_equal(other._draw_slowdowns(0), blocks[0])
    slow = np.concatenate(blocks) == 10
    np.testing.assert_allclose(slow.mean(0), 0.2, atol=0.04)
    # Slow together by chance alone: blocks that repeat would be alike at every round.
    alike = np.mean((blocks[0] == 10) & (blocks[1] == 10))
    assert alike == pytest.approx(0.04, abs=0.015)


@pytest.mark.parametrize(
    "network, half, shared",
    [(path(4), 2, 3), (ring(6), 2, 3), (complete(4), 3, 6), (path(2), 1, 1)],
    ids=lambda given: getattr(given, "name", given),
)
def test_how_many_turns_there_are(network, half, shared):
    """The chromatic index, and the strong one: what there must be at least."""
    made = network.with_links(rate=8.0)
    for turns, kind in ((half, "half_duplex"), (shared, "shared_medium")):
        links = made.with_links(**{kind: True}).links
        assert len(set(links.turns)) == turns
        for k in range(turns):
            busy = [
                end for edge, turn in zip(links.edges, links.turns) if turn == k for end in edge
            ]
            assert len(set(busy)) == len(busy)
        assert clock(made.with_links(**{kind: True}), (1, False)).seconds(3) == pytest.approx(
            3 * turns * 2
        )


def test_turns_of_unequal_links():
    made = path(3).with_links({(0, 1): 8.0, (2, 1): 4.0}, half_duplex=True, compute=[0, 5, 1])
    assert clock(made, (1, False)).seconds(2) == pytest.approx(2 * (5 + 2 * 1 + 2 * 2))
    assert clock(made, (1, True)).seconds(2) == pytest.approx(2 * max(5, 2 * 1 + 2 * 2))


def written_out(network, exchanges, rounds, slow, arcs=lambda t: None):
    """The recurrence of `Clock`, agent by agent; arcs(t): {(sender, receiver): link}."""
    links, m = network.links, network.agents
    times = np.zeros(m)
    both = {way: e for e, (i, j) in enumerate(network.edges) for way in ((i, j), (j, i))}
    for t in range(rounds):
        arcs_of_round = both if arcs(t) is None else arcs(t)
        busy = links.compute * slow(t) / len(exchanges)
        for count, early in exchanges:
            cost = links.latency + 8 * count / links.rate / (1 - links.loss)
            begin = times if early else times + busy
            heard = lambda i, arcs_of_round=arcs_of_round, begin=begin, cost=cost: [
                begin[j] + cost[e] for (j, k), e in arcs_of_round.items() if k == i
            ]
            times = np.array([max([times[i] + busy[i], *heard(i)]) for i in range(m)])
    return times.max()


def test_links_that_go_one_way_or_are_not_always_there():
    """As a directed ring, and as a ring whose links take turns."""
    made = ring(5)
    arcs = [(0, 1), (1, 2), (2, 3), (3, 4), (4, 0)]
    options = {"rate": {(4, 0): 50.0, "other": 80.0}, "latency": 0.1, "compute": [1, 0, 2, 0, 0.5]}
    links = update_links(None, arcs, 5, options, one_way=True)
    with pytest.raises(ValueError, match="rate: the network has no link 0-4"):
        update_links(None, arcs, 5, {"rate": {(0, 4): 1.0, "other": 1.0}}, one_way=True)
    assert links.rate.tolist() == [80, 80, 80, 80, 50]
    view = SimpleNamespace(links=links, agents=5, edges=arcs)
    found, steady = LinkClock(links, [(10, False), (4, True)], 0), np.ones(5)
    for rounds in (1, 2, 30, 31):
        wanted = written_out(
            view,
            [(10, False), (4, True)],
            rounds,
            lambda t: steady,
            lambda t: {arc: e for e, arc in enumerate(arcs)},
        )
        assert found.seconds(rounds) == pytest.approx(wanted, rel=1e-12)
    turns = replace(links, half_duplex=True)
    assert len(set(turns.turns)) == 3 and LinkClock(turns, [(10, False)], 0).seconds(
        1
    ) == pytest.approx(2 + 2 * 1.1 + 1.7)
    made = made.with_links(8.0, 0.5, compute=[1, 0, 2, 0, 0.5], joules_per_bit=1.0)
    active = [[0, 2], [1], [3, 4, 0]]
    found = LinkClock(made.links, [(1, False)], 0, active)
    here = lambda t: {way: e for e in active[t % 3] for way in (made.edges[e], made.edges[e][::-1])}
    for rounds in (0, 1, 2, 3, 17, 300):
        wanted = written_out(made, [(1, False)], rounds, lambda t: steady, here)
        assert found.seconds(rounds) == pytest.approx(wanted, rel=1e-10)
    assert found.count_active_rounds(7).tolist() == [5, 2, 3, 2, 2]


def test_agents_wait_for_their_neighbours_only():
    random = np.random.default_rng(0)
    made = diamond.network.erdos_renyi(7, p=0.4, seed=1)
    edges = len(made.edges)
    made = made.with_links(
        random.uniform(1e3, 1e4, edges),
        random.uniform(0, 0.1, edges),
        random.uniform(0, 0.5, edges),
        compute=random.uniform(0, 0.3, 7),
        stragglers={3: 4.0},
    )
    factors = np.where(np.arange(7) == 3, 4.0, 1.0)
    for exchanges in ([(60, False)], [(60, True)], [(60, True), (9, False), (30, False)]):
        found = clock(made, *exchanges)
        for rounds in (400, 1, 40, 0, 41, 2):  # whatever was asked before
            wanted = written_out(made, exchanges, rounds, lambda t: factors)
            assert found.seconds(rounds) == pytest.approx(wanted, rel=1e-10)
            assert clock(made, *exchanges).seconds(rounds) == found.seconds(rounds)
        assert found.period_gain is not None, (
            "a steady course is found, so that long runs cost nothing"
        )


def test_agents_that_are_slow_by_chance():
    made = ring(5).with_links(1e4, compute=0.1, slow_chance=0.2, slow_factor=10)
    found = clock(made, (10, False), seed=3)
    wanted = written_out(made, [(10, False)], 1100, lambda t: found._slowdowns(t))
    assert found.seconds(1100) == pytest.approx(wanted, rel=1e-10)
    assert found.seconds(1100) == clock(made, (10, False), seed=3).seconds(1100)
    assert found.seconds(1100) != clock(made, (10, False), seed=4).seconds(1100)
    drawn = np.array([found._slowdowns(t) for t in range(2000)])
    assert set(np.unique(drawn)) == {1.0, 10.0} and abs(np.mean(drawn == 10) - 0.2) < 0.02
    alone = 1100 * (0.1 + 8 * 10 / 1e4)
    all_wait = alone + 0.9 * np.sum(drawn[:1100].max(1) == 10)
    assert alone < found.seconds(1100) < all_wait
    together = made.with_links(half_duplex=True)
    everyone = np.sum(0.1 * drawn[:1100].max(1)) + 1100 * 3 * 2 * 8 * 10 / 1e4
    assert clock(together, (10, False), seed=3).seconds(1100) == pytest.approx(everyone)


def test_computing_as_measured_is_an_agents_share():
    made = ring(4).with_links(1e4, compute="measured", stragglers={0: 3})
    sent = 10 * 8 * 10 / 1e4
    assert clock(made, (10, False)).seconds(10, measured=2.0) == pytest.approx(sent + 3 * 2.0 / 4)
    assert clock(ring(1).with_links(1.0, compute=2.0), (10, False)).seconds(3) == 6.0


@pytest.mark.parametrize(
    "options, message",
    [
        ({}, "links need a rate in bit/s"),
        ({"rate": 0}, "rate of link 0-1 is 0 bit/s; it must be above 0"),
        ({"rate": "fast"}, "rate is 'fast'; give a finite number"),
        ({"rate": [1.0, 2.0]}, "rate has 2 numbers; give a number, or one for each of the 3 links"),
        ({"rate": {(0, 2): 1.0, (1, 5): 1.0}}, "rate: the network has no link 1-5; its links are"),
        ({"rate": {"0-1": 1.0}}, 'rate lacks the link 0-2; name it, or give "other"'),
        ({"rate": {"a": 1.0}}, "rate: 'a' is no link"),
        ({"rate": 1, "loss": 1}, "loss of link 0-1 is 1; it must be 0 or more and below 1"),
        ({"rate": 1, "latency": -0.1}, "latency of link 0-1 is -0.1 s; it must be 0 or more"),
        ({"rate": 1, "joules_per_bit": -1}, "joules_per_bit of link 0-1 is -1 J"),
        ({"rate": 1, "compute": -1}, "compute of agent 0 is -1; it must be 0 or more"),
        ({"rate": 1, "compute": "quick"}, "compute is 'quick'; give a finite number"),
        ({"rate": 1, "stragglers": {7: 2}}, "stragglers: no agent 7; there are 0 to 2"),
        ({"rate": 1, "stragglers": {1: 0}}, "stragglers of agent 1 is 0; it must be above 0"),
        ({"rate": 1, "half_duplex": 1}, "half_duplex is 1; it must be true or false"),
        ({"rate": 1, "slow_chance": 2}, "slow_chance is 2; a chance lies between 0 and 1"),
        ({"rate": 1, "slow_factor": 0.5}, "slow_factor is 0.5; it is how many times slower"),
    ],
)
def test_what_no_link_can_be(options, message):
    with pytest.raises(ValueError, match=message.replace("(", r"\(")):
        ring(3).with_links(**options)


def test_links_as_a_table_and_in_words():
    made = ring(4).with_links(
        {(1, 0): 5.0, "other": 7}, 0.1, 0.5, 1e-6, stragglers={"2": 3}, slow_chance=0.1
    )
    again = ring(4).with_links(**made.links.to_options())
    assert again.links.to_options() == made.links.to_options()
    assert made.links.rate.tolist() == [5, 7, 7, 7]
    assert repr(made).endswith(
        "links of 5 to 7 bit/s, 100 ms, loss 50 %, 1 uJ/bit, 1 straggler, 10 % slow by 1"
    )
    changed = made.with_links(latency=0.2, shared_medium=True)
    assert changed.links.rate.tolist() == [5, 7, 7, 7] and changed.links.slow_chance == 0.1
    assert "200 ms, loss 50 %, 1 uJ/bit, shared medium" in changed.title
    fast = ring(4).with_links(2e9, compute="measured", half_duplex=True)
    assert fast.title == "ring(4), 2 Gbit/s, 0 s, half duplex, computing as measured"


def dsgd():
    return build("dsgd", alpha=0.05, beta=0.2, batch=3, hypergradient=CHAIN)


@pytest.fixture(scope="module", autouse=True)
def seconds_only():
    """What is measured of x and y is not looked at here."""
    with pytest.MonkeyPatch.context() as patch:
        skip_measures(patch)
        yield


@pytest.fixture(scope="module")
def linked():
    return ring(4).with_links(1e4, 0.01, 0.05, 1e-6, compute=0.02, slow_chance=0.1, slow_factor=5)


@pytest.fixture(scope="module")
def run(linked):
    return diamond.simulate(quad(), linked, dsgd(), 12, every=3, seed=5)


def test_the_history_of_a_run(linked, run):
    found = LinkClock(linked.links, [(SIZE, True)], 5)
    assert dsgd().stages[0].sends_before_gradient
    wanted = [found.seconds(t) for t in (0, 3, 6, 9, 12)]
    assert run.history["network_seconds"].tolist() == wanted and wanted[-1] > 12 * 0.02
    joules = run.history["bytes"] * 8 * 1e-6 / 0.95
    np.testing.assert_allclose(run.history["joules"], joules, rtol=1e-12)


def test_without_links_there_is_no_such_column_and_the_same_trajectory(run):
    plain = diamond.simulate(quad(), ring(4), dsgd(), 12, every=3, seed=5)
    assert not {"network_seconds", "joules"} & set(plain.history)
    assert np.array_equal(plain.last_x, run.last_x)


@pytest.mark.wide
def test_the_same_after_a_stop_side_by_side_and_on_devices(linked, run):
    given = quad(), linked, dsgd(), 12
    snapshots = []
    diamond.simulate(*given[:3], 6, every=3, seed=5, on_progress=snapshots.append)
    resumed = diamond.simulate(*given, every=3, seed=5, resume=snapshots[-1])
    lanes = simulate_many(*given[:2], [(dsgd(), 5)], 12, every=3, batched=True)[0]
    cut = diamond.simulate(*given, every=3, seed=5, devices=2)
    for history in (resumed.history, lanes.history, cut.history):
        for name in ("network_seconds", "joules"):
            assert history[name].tolist() == run.history[name].tolist()


def test_a_budget_ends_the_run():
    made = ring(4).with_links(1e4, 0.01)
    algorithm = build("gt_sgd", batch=3, hypergradient=CHAIN, alpha=0.05, beta=0.2)
    found = diamond.simulate(quad(), made, algorithm, 60, every=2, stop={"network_seconds": 0.5})
    each = 0.01 + 8 * 2 * SIZE / 1e4
    assert found.rounds == 2 * np.ceil(0.5 / each / 2)
    assert found.message == (
        f"stopped at round {found.rounds}: network_seconds "
        f"{found.history['network_seconds'][-1]:.4g} >= 0.5"
    )
    for name, message in (("network_seconds", "with links"), ("joules", "joules_per_bit")):
        with pytest.raises(ValueError, match=f"stop: {name} needs a network .*{message}"):
            diamond.simulate(quad(), ring(4), algorithm, 2, stop={name: 1})
