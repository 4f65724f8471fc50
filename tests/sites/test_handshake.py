"""Handshake: a site that runs something else gets the differences, while the others wait."""

import asyncio
import time

import pytest
from fast_compilation import skip_loss_checks, without_optimizations
from helpers import quad
from lockstep_agents import agents, build_algorithm

import diamond
from diamond.sites.identity.handshake import describe_differences
from diamond.sites.rounds.node import Node
from diamond.sites.transport.errors import RunMismatch
from diamond.sites.transport.in_process_transport import InProcessNetwork, run_inline, run_simulated
from diamond.sites.transport.timeouts import NeighbourTimeout, Timeouts
from diamond.templates import sites_demo

NAMES = {0: "north", 1: "south", 2: "west"}
LIMITS = Timeouts(connect=1.0, round=30.0, give_up=600.0)
ROUNDS = 2


@pytest.fixture(scope="module")
def sites():
    """Three sites on a ring; and the third as it would be with another seed."""
    with pytest.MonkeyPatch.context() as patch, without_optimizations():
        skip_loss_checks(patch)
        problem, ring, method = quad(agents=3), diamond.network.ring(3), build_algorithm("gt_sgd")
        yield agents(problem, ring, method), agents(problem, ring, method, seed=1)[2]


def start_node(wire, agent):
    node = Node(
        agent,
        ROUNDS,
        wire.transport(agent.number),
        timeouts=LIMITS,
        run_blocking=run_inline,
        names=NAMES,
    )
    wire.nodes[agent.number] = node
    return asyncio.ensure_future(node.run())


@pytest.mark.wide
def test_a_site_with_another_run_is_refused_and_the_others_wait_for_it(sites):
    right, odd = sites

    async def story():
        wire = InProcessNetwork()
        others = [start_node(wire, agent) for agent in right[:2]]
        with pytest.raises(RunMismatch) as error:
            await start_node(wire, odd)
        del wire.nodes[2]  # it has stopped
        await asyncio.sleep(300)
        assert not any(task.done() for task in others)
        reasons = [wire.nodes[i].wait_records[2].last_error for i in (0, 1)]
        ends = await asyncio.gather(*others, start_node(wire, right[2]))
        return str(error.value), reasons, [progress.t for progress in ends]

    error, reasons, ends = run_simulated(story())
    assert error.startswith(
        "west runs something else than all its neighbours: north runs something"
    )
    assert "another seed (0 at north, 1 at west)" in error and "start it again" in error
    assert all("it ran something else: another seed" in reason for reason in reasons)
    assert ends == [ROUNDS] * 3


def test_an_absent_neighbour_is_named(sites):
    (north, *_), _ = sites

    async def alone():
        await start_node(InProcessNetwork(), north)

    with pytest.raises(NeighbourTimeout, match=r"for the greeting of (south|west)"):
        run_simulated(alone())


def test_differences_are_described_with_both_places():
    reason = describe_differences(
        {"seed": "0", "run": "a"}, {"seed": "1", "run": "b"}, "at north", "at west"
    )
    assert reason == "another seed (0 at north, 1 at west)"


def test_the_demo_says_what_it_waits_for_and_never_gives_up(monkeypatch, tmp_path):
    """However long it takes, as long as every site is alive."""
    monkeypatch.setattr(sites_demo, "MESSAGE_SECONDS", 0.0)
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    heard = []
    demo = sites_demo.SitesDemo(tmp_path, heard.append)
    clock = iter(range(0, 10**6, 1000))
    monkeypatch.setattr(time, "monotonic", lambda: next(clock))
    demo._wait_until(lambda: len(heard) == 3, "all to finish")
    assert heard[0].startswith("waiting for all to finish: north compiling, east compiling")
