"""False messages: they are detected and logged."""

import asyncio
import copy
from itertools import count, cycle

import jax.numpy as jnp
import numpy as np
import pytest
from fast_compilation import skip_loss_checks, without_optimizations
from helpers import quad, ring
from lockstep_agents import agents, build_algorithm

import diamond
from diamond.problem import Problem
from diamond.sites.rounds.node import Node
from diamond.sites.rounds.site_agent import Agent
from diamond.sites.transport.audit import Audit
from diamond.sites.transport.errors import RunFailed
from diamond.sites.transport.in_process_transport import InProcessNetwork, run_inline, run_simulated
from diamond.sites.trust.outlier_detection import FAR_FACTOR, WINDOW_ROUNDS, OutlierDetector

LIAR = 0
NAMES = {0: "north", 1: "south", 2: "west", 3: "east"}
SIGNS = cycle([0.9, 0.9, -0.9, -0.9])
FALSIFICATIONS = {
    "flipped": lambda arrays: [-4 * a for a in arrays],
    "constant": lambda arrays: [np.full_like(a, 7.0) for a in arrays],
    "huge": lambda arrays: [np.full_like(a, next(SIGNS) * np.finfo(a.dtype).max) for a in arrays],
}


@pytest.fixture(scope="module")
def team():
    with pytest.MonkeyPatch.context() as patch, without_optimizations():
        skip_loss_checks(patch)
        yield agents(quad(agents=4), ring(4), build_algorithm("gt_sgd", order="paper"))


def run(team, falsify=None, rounds=16):
    """The nodes after their rounds, and what each came to; the liar tells `lie` of its message."""

    async def everyone():
        wire, works = InProcessNetwork(), []
        for agent in team:
            one = copy.copy(agent)
            if falsify and agent.number == LIAR:
                one.outgoing_arrays = lambda *args, arrays=agent.outgoing_arrays: falsify(
                    arrays(*args)
                )
            if falsify is FALSIFICATIONS["huge"] and agent.number == LIAR:
                one.finish_exchange = lambda progress, exchange, local_result, messages: (
                    progress
                )  # it does not care
            node = Node(
                one, rounds, wire.transport(one.number), run_blocking=run_inline, names=NAMES
            )
            wire.nodes[one.number] = node
            works.append(node.run())
        ends = await asyncio.gather(*works, return_exceptions=True)
        return list(wire.nodes.values()), ends

    with without_optimizations():
        return run_simulated(everyone())


def test_honest_messages_are_no_outliers(team):
    nodes, _ = run(team)
    assert all(set(node.exchange_runner.outlier_detector.counts.values()) == {0} for node in nodes)


@pytest.mark.wide
@pytest.mark.parametrize("name", ["flipped", "constant"])
def test_false_messages_are_logged_with_their_sender(team, name, caplog):
    nodes, _ = run(team, FALSIFICATIONS[name])
    for number in (1, 3):
        counts = nodes[number].exchange_runner.outlier_detector.counts
        assert counts[LIAR] > 0 and counts[2] == 0
    assert "north: its message of round" in caplog.text and "times as far" in caplog.text


def test_divergence_names_the_sender_of_outliers(team):
    _, ends = run(team, FALSIFICATIONS["huge"])
    own = [str(end) for end in ends if isinstance(end, FloatingPointError)]
    assert own and all(isinstance(end, FloatingPointError | RunFailed) for end in ends)
    assert all("; north has sent 1 absurd messages" in message for message in own)


@pytest.fixture(scope="module")
def clinics():
    """Three sites whose rows differ: those of docs/tutorials/three_sites.md."""
    loss = lambda x, y, rows: jnp.mean((rows["a"] @ y - rows["b"]) ** 2)
    lower = lambda x, y, rows: loss(x, y, rows) + jnp.mean(jnp.exp(x) * y**2)
    start = lambda key: (jnp.zeros(4, np.float32), jnp.zeros(4, np.float32))
    made = []
    for i in range(3):
        a = np.random.default_rng(i).normal(i, 1, (60, 4)).astype(np.float32)
        rows = {"a": a, "b": a[:, 0] - a[:, 1]}
        halves = [{k: v[part] for k, v in rows.items()} for part in (slice(30), slice(30, 60))]
        made.append(Problem(loss, lower, start, *([half] for half in halves)))
    method = diamond.gt_sgd(batch=8)
    return [Agent(one, diamond.network.ring(3), method, i) for i, one in enumerate(made)]


def test_honest_sites_whose_rows_differ_are_no_outliers(clinics, caplog):
    nodes, ends = run(clinics, rounds=100)
    assert [end.t for end in ends] == [100] * 3
    assert [set(node.exchange_runner.outlier_detector.counts.values()) for node in nodes] == [
        {0}
    ] * 3
    assert "its message of round" not in caplog.text


@pytest.mark.wide
@pytest.mark.parametrize("since", [0, 20])
def test_only_a_site_that_scales_its_messages_is_an_outlier(clinics, since):
    falsify = lambda arrays, rounds=count(): [(1000 if next(rounds) >= since else 1) * arrays[0]]
    nodes, _ = run(clinics, lambda arrays: falsify(arrays) + arrays[1:], rounds=30)
    for number, other in ((1, 2), (2, 1)):
        counts = nodes[number].exchange_runner.outlier_detector.counts
        assert counts[LIAR] > 0 and counts[other] == 0


def test_a_jump_of_a_single_neighbour_is_an_outlier():
    lines = []
    alone = OutlierDetector([0, 1], 0, ["me", "west"], Audit(lines.append))
    own = np.array([1.0])
    for t in range(WINDOW_ROUNDS):
        assert alone.detect_outliers(t, np.array([[0.0, 0.5]]), own) == {}
    assert alone.detect_outliers(WINDOW_ROUNDS, np.array([[0.0, 0.5 * FAR_FACTOR]]), own) == {}
    assert alone.detect_outliers(WINDOW_ROUNDS + 1, np.array([[0.0, 11 * FAR_FACTOR]]), own) == {
        1: "is 22 times as far from this site's as is usual"
    }
    assert len(lines) == 1 and lines[0].startswith(
        f"west: its message of round {WINDOW_ROUNDS + 1} is 22"
    )
