"""Two processes with one bundle: neighbours notice; a dead process is replaced."""

import asyncio

import pytest
from tls_sites import SHORT_TIMEOUTS, federation

from diamond.sites.transport import session
from diamond.sites.transport.audit import Audit
from diamond.sites.transport.errors import Refused
from diamond.sites.transport.rpc import RpcClient
from diamond.sites.transport.server import Server
from diamond.sites.transport.timeouts import Timeouts
from diamond.sites.transport.wire_format import pack

PING = pack({"kind": "ping", "sender": 0})
TIMEOUTS = Timeouts(connect=5.0, round=5.0, give_up=60.0)


async def answer(sender, request):
    return b"answer"


def client(bundle, instance=b"", timeouts=TIMEOUTS):
    return RpcClient(bundle, 1000, timeouts, instance=instance)


@pytest.fixture
def bundles(tmp_path):
    return federation(tmp_path)


def test_a_second_process_of_a_site_is_refused_and_both_log_it(bundles, caplog):
    one, two, _ = bundles
    lines = []

    async def attempt():
        server = Server(two, answer, audit=Audit(lines.append))
        async with server, client(one, b"first") as first, client(one, b"second") as second:
            await first.send_request(1, PING)
            with pytest.raises(Refused, match=r"site0 runs already, with the same keys, at 127.0"):
                await second.send_request(1, PING)
            assert await first.send_request(1, PING) == b"answer"
            async with client(one) as operator, client(one, b"first") as reconnected:
                assert await operator.send_request(1, PING) == b"answer"
                assert await reconnected.send_request(1, PING) == b"answer"

    asyncio.run(attempt())
    assert any("refused: site0 runs already" in line for line in lines)
    assert "another process with the keys of site0 has connected to site1" in caplog.text


def test_a_process_that_ended_is_replaced_at_once(bundles):
    one, two, _ = bundles

    async def attempt():
        async with Server(two, answer):
            async with client(one, b"first") as first:
                await first.send_request(1, PING)
            async with client(one, b"second", SHORT_TIMEOUTS) as second:
                async with asyncio.timeout(session.PROBE_SECONDS / 2):
                    assert await second.send_request(1, PING) == b"answer"

    asyncio.run(attempt())


def test_a_process_that_vanished_without_a_word_is_replaced(bundles, monkeypatch):
    """Its machine lost power: the connection stays open, and nothing answers on it."""
    one, two, _ = bundles
    monkeypatch.setattr(session, "PROBE_SECONDS", 0.2)

    async def attempt():
        async with Server(two, answer) as server, client(one, b"first") as first:
            await first.send_request(1, PING)
            first._connections[1]._packets.transport.pause_reading()
            async with client(one, b"second") as second:
                assert await second.send_request(1, PING) == b"answer"
                assert [s.instance for s in server.sessions] == [b"second"]
            first._connections[1]._packets.transport.abort()

    asyncio.run(attempt())
