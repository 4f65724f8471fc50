"""Subscriptions: few requests in a run without faults, and requests once a subscription ends."""

import asyncio

import pytest
from crash_cluster import EVERY, LIMITS, ROUNDS, team
from helpers import same_bits
from lockstep_agents import run_lockstep

from diamond.sites.rounds.node import Node
from diamond.sites.transport.errors import RunFailed
from diamond.sites.transport.in_process_transport import InProcessNetwork, run_inline, run_simulated
from diamond.sites.transport.packet_stream import CHUNK_BYTES
from diamond.sites.transport.session import Session
from diamond.sites.transport.subscription import MAX_QUEUED, Publisher, Subscription
from diamond.sites.transport.wire_format import unpack


def ran(*faults):
    """Where all agents end, and the kinds of the requests."""
    asked = []

    async def note(hop, content):
        if not hop.is_response:
            asked.append(unpack(content, 2**16)[0]["kind"])
        return content

    async def everyone():
        wire = InProcessNetwork(note, *faults)
        for agent in team():
            fixed = agent, ROUNDS, wire.transport(agent.number), None, EVERY, LIMITS, run_inline
            wire.nodes[agent.number] = Node(*fixed)
        clock = asyncio.get_running_loop().time
        begun = clock()
        ended = await asyncio.gather(*(node.run() for node in wire.nodes.values()))
        return ended, clock() - begun

    found, seconds = run_simulated(everyone())
    assert faults or seconds < LIMITS.round / 4  # the last word is asked for at once
    calm = run_lockstep(team(), ROUNDS)
    assert all(same_bits(one, other) for one, other in zip(found, calm, strict=True))
    return asked


def test_without_faults_only_the_end_is_requested():
    asked = ran()
    assert asked.count("follow") == 4 and asked.count("ask") <= 4  # both ways of two edges
    assert asked.count("kept") >= 4  # neighbours hear what they may forget


def test_an_unreadable_message_is_requested_and_subscribed_to_again():
    spoiled = []

    async def spoil(hop, content):
        if hop.is_response and len(content) > 64 and len(spoiled) < 3:
            spoiled.append(hop)
            return content[:-1]
        return content

    asked = ran(spoil)
    assert len(spoiled) == 3 and 4 < asked.count("follow") <= 7 and asked.count("ask") > 4


def test_a_subscription_ends_by_silence_refusal_or_too_many_messages():
    async def silence():
        one = Subscription(5)
        assert one.receive(b"5") and await one.next_message(3.0) == b"5" and one.next_tick == 6
        begun = asyncio.get_running_loop().time()
        assert await one.next_message(3.0) is None and one.ended
        assert asyncio.get_running_loop().time() == pytest.approx(begun + 3.0)
        assert one.receive(b"6") and await one.next_message(3.0) is None  # late: it was asked for
        refused = Subscription(0)
        asyncio.get_running_loop().call_later(1.0, refused.end, RunFailed("diverged"))
        with pytest.raises(RunFailed, match="diverged"):
            await refused.next_message(3.0)
        flooded = Subscription(0)
        assert [flooded.receive(b"") for _ in range(MAX_QUEUED + 1)] == [True] * MAX_QUEUED + [
            False
        ]
        assert flooded.ended

    run_simulated(silence())


def test_a_subscriber_that_does_not_read_is_dropped_and_takes_no_memory():
    class Stuck:
        """The way of one that reads nothing."""

        sent = 0

        def is_closing(self):
            return False

        def writelines(self, parts):
            self.sent += sum(map(len, parts))

    class SessionServer:
        def start_task(self, work):
            return asyncio.ensure_future(work)

        def limit_unread(self, session):
            assert session.unread <= MAX_QUEUED

    async def push():
        session, publisher = Session(SessionServer(), "here:1"), Publisher(0)
        session.packets.connection_made(way := Stuck())
        session.attach_publisher(1, publisher)
        assert publisher.send(b"m" * 1000) and way.sent > 1000  # at once
        session.packets.pause_writing()
        assert [publisher.send(b"m" * 1000) for _ in range(MAX_QUEUED + 2)] == [
            True
        ] * MAX_QUEUED + [False] * 2
        before = way.sent
        await asyncio.sleep(1.0)
        assert way.sent < before + 100 and len(session.pending_pushes) == MAX_QUEUED
        session.packets.resume_writing()
        await asyncio.sleep(1.0)
        assert way.sent > before + MAX_QUEUED * 1000 and not session.pending_pushes
        assert publisher.send(b"m" * 2 * CHUNK_BYTES)  # a long one goes in pieces
        await asyncio.sleep(1.0)
        assert way.sent > before + MAX_QUEUED * 1000 + 2 * CHUNK_BYTES
        session.authenticated.cancel()  # nobody waits for it
        session.packets.connection_lost(None)
        assert not publisher.send(b"m")

    run_simulated(push())


@pytest.mark.quick
def test_a_notebook_whose_own_loop_runs_can_rehearse():
    """The simulated hour passes at once, in another loop than the one that waits."""

    async def clock():
        await asyncio.sleep(3600.0)
        return asyncio.get_running_loop().time()

    async def notebook():
        return run_simulated(clock())

    assert asyncio.run(notebook()) == run_simulated(clock()) == 3600.0
