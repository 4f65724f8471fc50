"""Limits on the memory and connections that a neighbour, or a flood of strangers, can take."""

import asyncio
import socket
import tracemalloc

import pytest
from tls_sites import federation

from diamond.sites.identity import roster
from diamond.sites.memory import message_store
from diamond.sites.memory.outbox import Outbox
from diamond.sites.transport import admission
from diamond.sites.transport.packet_stream import REQUEST, RESPONSE, PacketStream
from diamond.sites.transport.server import Server
from diamond.sites.transport.tls import tls_context
from diamond.sites.transport.wire_format import pack


@pytest.fixture
def bundles(tmp_path):
    return federation(tmp_path / "federation")


@pytest.fixture
def outbox(tmp_path):
    """Messages of 2 MB on the disk, by round."""
    frames = {(t, 0): bytes([t]) * 2**21 for t in range(16)}
    outbox = Outbox([0])
    outbox.frames = dict(message_store.save(tmp_path / "messages", 16, frames))
    return outbox


async def connected(one, two, on_packet=lambda *packet: None, **options):
    """A connection of the site of the bundle `one` to that of `two`, proved; its packets."""
    packets = PacketStream(2**24, on_packet)
    host, port = two.me.address.split(":")
    secured = {"ssl": tls_context(one, is_server=False)}
    secured["server_hostname"] = roster.certificate_name(two.me.fingerprint)
    where = () if "sock" in options else (host, int(port))
    loop = asyncio.get_running_loop()
    await loop.create_connection(lambda: packets, *where, **secured, **options)
    packets.write_small(0, REQUEST, pack({"kind": "open", "roster": 1}))
    return packets


def test_answers_that_a_neighbour_never_reads_take_little_memory(bundles, outbox, caplog):
    one, two, _ = bundles

    async def attempt():
        async def handle_request(sender, request):
            return outbox.get(request[0])

        async with Server(two, handle_request) as server:
            opened = [await connected(one, two) for _ in range(8)]
            for number in range(32):
                for packets in opened:
                    if not packets.transport.is_closing():
                        packets.transport.pause_reading()
                        packets.write_small(number, REQUEST, bytes([number % 16]))
                await asyncio.sleep(0)
            await asyncio.sleep(0.5)
            held = tracemalloc.get_traced_memory()[0]
            last = await connected(one, two)  # it is not shut out
            await asyncio.sleep(0.1)
            assert server.sessions[-1].member.name == "site0" and not last.closed.done()
            for packets in (*opened, last):
                packets.transport.abort()
            await asyncio.sleep(0.1)
            return held, tracemalloc.get_traced_memory()[0], len(server.sessions)

    tracemalloc.start()
    try:
        held, after, sessions = asyncio.run(attempt())
    finally:
        tracemalloc.stop()
    assert held < 40e6 and after < 8e6 and sessions == 0
    assert "site0 at 127.0.0.1" in caplog.text and "answers that it does not read" in caplog.text


def test_a_stored_message_is_read_once_for_simultaneous_users(outbox):
    first, second = outbox.get(3), outbox.get(3)
    assert first.obj is second.obj and bytes(first) == bytes([3]) * 2**21
    del first, second
    assert len(outbox._reads) == 0


@pytest.mark.parametrize("source", ["127.0.0.1", "127.0.2.1"])  # as in the roster, and another
def test_a_flood_of_silent_connections_keeps_no_neighbour_out(bundles, source):
    one, two, _ = bundles
    host, port = two.me.address.split(":")

    async def attempt():
        async def handle_request(sender, request):
            return b"here"

        answers = asyncio.Queue()
        async with Server(two, handle_request):
            await asyncio.sleep(0.05)
            slow = socket.create_connection((host, int(port)), source_address=(source, 0))
            slow.setblocking(False)
            await asyncio.sleep(0.05)
            flood = []
            for n in range(4 * admission.MAX_TOTAL):  # while the neighbour's first bytes travel
                where = {"local_addr": (f"127.0.1.{n % 40 + 1}", 0)}
                flood.append(await asyncio.open_connection(host, int(port), **where))
            on_packet = lambda *packet: answers.put_nowait(packet)
            packets = await connected(one, two, on_packet, sock=slow)
            number, code, _ = await asyncio.wait_for(answers.get(), 2)
            assert (number, code) == (0, RESPONSE)
            for writer in (packets, *(writer for _, writer in flood)):
                writer.transport.abort()
            await asyncio.sleep(0.05)

    asyncio.run(attempt())
