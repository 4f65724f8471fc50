"""Whatever strangers and faulty neighbours send, the server and the rounds continue."""

import asyncio
import logging
import ssl

import pytest
from crash_cluster import ROUNDS, team
from helpers import same_bits
from lockstep_agents import run_lockstep
from tls_sites import SHORT_TIMEOUTS, federation, largest_layout, running_site

from diamond.sites.identity import roster
from diamond.sites.transport import admission, session
from diamond.sites.transport.admission import AdmissionQueue
from diamond.sites.transport.audit import MAX_LINES, Audit, sanitize_text
from diamond.sites.transport.errors import Refused, Unreachable
from diamond.sites.transport.messages import MessageRequest
from diamond.sites.transport.packet_stream import REQUEST, PacketStream
from diamond.sites.transport.rpc import RpcClient
from diamond.sites.transport.server import MAX_REQUESTS, Server
from diamond.sites.transport.tls import tls_context
from diamond.sites.transport.wire_format import (
    max_frame_bytes,
    pack,
)

SILENT = 60


@pytest.fixture
def bundles(tmp_path):
    return federation(tmp_path / "federation")


async def silent(bundle, count):
    """So many connections that say nothing."""
    host, port = bundle.me.address.split(":")
    opened = [await asyncio.open_connection(host, int(port)) for _ in range(count)]
    await asyncio.sleep(0.2)
    return opened


def test_silent_connections_are_limited_and_the_rounds_continue(bundles, tmp_path, caplog):
    async def live(bundle):
        async with running_site(bundle, tmp_path / bundle.me.name) as node:
            if bundle.me.number == 1:
                opened = await silent(bundle, SILENT)
                held = [await still(reader) for reader, _ in opened]
                assert sum(held) <= admission.MAX_PER_ADDRESS and held[-1]
            found = await node.run()
            if bundle.me.number == 1:
                for _, writer in opened:
                    writer.transport.abort()
                await asyncio.sleep(0.05)
            return found

    async def still(reader):
        """Whether the other end has left the connection open."""
        try:
            await asyncio.wait_for(reader.read(1), 0.001)
            return False
        except TimeoutError:
            return True
        except ConnectionError:
            return False

    async def everyone():
        return await asyncio.gather(*map(live, bundles))

    with caplog.at_level(logging.WARNING):
        found = asyncio.run(everyone())
    assert all(same_bits(a, b) for a, b in zip(found, run_lockstep(team(), ROUNDS), strict=True))
    assert "127.0.0.1" in caplog.text and "too many connections that prove nothing" in caplog.text


def test_an_unauthenticated_connection_is_closed_and_logged(bundles, monkeypatch, caplog):
    monkeypatch.setattr("diamond.sites.transport.server.AUTHENTICATION_SECONDS", 0.2)

    async def attempt():
        async with running_site(bundles[1]):
            ((reader, writer),) = await silent(bundles[1], 1)
            try:
                return await asyncio.wait_for(reader.read(), 2)
            finally:
                writer.transport.abort()
                await asyncio.sleep(0.01)

    assert asyncio.run(attempt()) == b""
    assert "no proof of a key within 0.2 s" in caplog.text


def test_a_flood_evicts_its_oldest_connections_by_address():
    evicted, queue = [], AdmissionQueue(max_total=6, max_per_address=4)
    for n in range(10):
        queue.add("flood", lambda n=n: evicted.append(n))
    assert evicted == [0, 1, 2, 3, 4, 5]
    inside = [queue.add("other", lambda n=n: evicted.append(n)) for n in (20, 21)]
    assert evicted[6:] == []
    queue.add("third", lambda: evicted.append(30))
    assert evicted[6:] == [6]  # the oldest of all
    for number in inside:
        queue.remove(number)
    assert len(queue.pending) == 4


def test_a_neighbour_with_too_many_requests_is_closed(bundles, caplog):
    one, two, _ = bundles

    async def attempt():
        async with (
            running_site(two) as node,
            RpcClient(one, max_frame_bytes(largest_layout()), SHORT_TIMEOUTS) as caller,
        ):
            later = MessageRequest(node.run_digest, 0, 3, 0).encode()  # held until round 3 is there
            asked = [
                asyncio.ensure_future(caller.send_request(1, later))
                for _ in range(MAX_REQUESTS + 1)
            ]
            found = await asyncio.gather(*asked, return_exceptions=True)
            assert {type(one) for one in found} == {Unreachable}
            return await caller.send_request(1, pack({"kind": "ping", "sender": 0}))  # dialled anew

    assert asyncio.run(attempt())
    assert "site0 at 127.0.0.1" in caplog.text and "requests at once" in caplog.text


def test_a_member_has_few_connections_and_the_newest_count(bundles, monkeypatch):
    monkeypatch.setattr("diamond.sites.transport.server.MAX_CONNECTIONS", 3)
    one, two, _ = bundles
    ping = pack({"kind": "ping", "sender": 0})

    async def attempt():
        async def answer(sender, request):
            return b"here"

        async with Server(two, answer) as server:
            callers = [RpcClient(one, 100, SHORT_TIMEOUTS) for _ in range(5)]
            for caller in callers:
                assert await caller.send_request(1, ping) == b"here"
            await asyncio.sleep(0.05)
            assert len(server.sessions) == 3
            assert await callers[0].send_request(1, ping) == b"here"  # it dials again
            for caller in callers:
                await caller.__aexit__()

    asyncio.run(attempt())


def test_a_slow_reader_costs_no_memory_and_nobody_else_waits(bundles):
    one, two, _ = bundles
    size = 2**24

    async def attempt():
        async def answer(sender, request):
            return b"\0" * size if len(request) == 1 else b"here"

        async with Server(two, answer) as server, RpcClient(one, size, SHORT_TIMEOUTS) as other:
            packets = PacketStream(size, lambda *heard: None)
            loop, (host, port) = asyncio.get_running_loop(), two.me.address.split(":")
            transport, _ = await loop.create_connection(
                lambda: packets,
                host,
                int(port),
                ssl=tls_context(one, is_server=False),
                server_hostname=roster.certificate_name(two.me.fingerprint),
            )
            packets.write_small(0, REQUEST, pack({"kind": "open", "roster": 1}))
            transport.pause_reading()
            for number in range(8):
                packets.write_small(number, REQUEST, b"!")
            await asyncio.sleep(0.3)
            (slow,) = server.sessions
            held = slow.packets.transport.get_write_buffer_size()
            assert len(slow.replies) == 8 and held < 2**21
            assert await other.send_request(1, b"ping") == b"here"
            transport.abort()
            await asyncio.sleep(0.01)

    asyncio.run(attempt())


def test_an_expired_certificate_ends_a_connection_that_was_open(bundles, monkeypatch, caplog):
    one, two, _ = bundles
    peer_identity = session.peer_identity
    monkeypatch.setattr(session, "peer_identity", lambda secured: (peer_identity(secured)[0], 0.0))

    async def attempt():
        async def answer(sender, request):
            await asyncio.sleep(1.0)
            return b"late"

        async with Server(two, answer), RpcClient(one, 100, SHORT_TIMEOUTS) as caller:
            with pytest.raises(Unreachable):
                await caller.send_request(1, b"anything")

    asyncio.run(attempt())
    assert "its certificate has expired" in caplog.text


@pytest.mark.parametrize("who", ["no tls", "no certificate", "not in the roster", "no neighbour"])
def test_every_refused_connection_leaves_a_line_with_its_address(bundles, tmp_path, caplog, who):
    one, two, three = bundles
    host, port = two.me.address.split(":")

    async def plainly(**options):
        reader, writer = await asyncio.open_connection(host, int(port), **options)
        try:
            writer.write(b"GET / HTTP/1.1\r\n\r\n")
            await asyncio.wait_for(reader.read(), 3)
        except (ConnectionError, ssl.SSLError):
            pass
        finally:
            writer.transport.abort()
            await asyncio.sleep(0.01)

    async def attempt():
        async with running_site(two):
            if who == "no tls":
                await plainly()
            elif who == "no certificate":
                bare = ssl.create_default_context(cadata=one.ca.decode())
                await plainly(ssl=bare, server_hostname=roster.certificate_name(two.me.fingerprint))
            else:
                with pytest.raises((Refused, Unreachable)):
                    async with RpcClient(
                        three if who == "no neighbour" else one, 100, SHORT_TIMEOUTS
                    ) as caller:
                        await caller.send_request(1, b"")
            await asyncio.sleep(0.1)

    if who == "not in the roster":
        from diamond.sites.identity import certificate_authority

        certificate_authority.renew_keys(tmp_path / "federation", "site0")
        two = roster.load_bundle(tmp_path / "federation" / "site1")
    elif who == "no neighbour":
        near = roster.Member(**{**vars(two.me), "neighbours": (0,)})
        two = roster.Bundle(**{**vars(two), "me": near})
    asyncio.run(attempt())
    text = {
        "no tls": "no mutual TLS",
        "no certificate": "no mutual TLS",
        "not in the roster": "is not in roster 2 of site1",
        "no neighbour": "site2 is no neighbour of site1",
    }
    (line,) = [record.message for record in caplog.records]
    assert line.startswith("127.0.0.1:") and text[who] in line


def test_a_flood_of_lines_is_counted_not_written():
    lines, now = [], [0.0]
    audit = Audit(lines.append, lambda: now[0])
    for n in range(1000):
        audit.record_event(f"10.0.0.7:{n + 1000}", f"refused: {n}")
        audit.record_event("10.0.0.8", "refused") if n == 500 else None
    assert len(lines) == MAX_LINES + 1 and audit.counts == {"10.0.0.7": 1000, "10.0.0.8": 1}
    now[0] = 61.0
    audit.record_event("west at 10.0.0.7:9", "refused: again")
    assert lines[-2:] == [
        f"10.0.0.7: {1000 - MAX_LINES} more lines left out",
        "west at 10.0.0.7:9: refused: again",
    ]


def test_foreign_text_cannot_forge_a_log_line():
    text = sanitize_text("good\n2026 round=9 \x1b[31mall is well\x1b[0m " + "x" * 1000)
    assert "\n" not in text and "\x1b" not in text and len(text) == 400
    assert text.startswith("good\\n2026 round=9 \\x1b[31mall is well")
    assert sanitize_text("étoile") == "étoile"
