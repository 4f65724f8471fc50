"""Edges whose ends accept no connections: one shared connection, relays, and who is refused."""

import asyncio
import contextlib
from dataclasses import replace

import numpy as np
import pytest
from crash_cluster import ROUNDS, team
from dialing_sites import found, relay, site
from helpers import same_bits
from lockstep_agents import run_lockstep
from tls_sites import NETWORK, SHORT_TIMEOUTS, ports, with_certificate

import diamond
from diamond.sites.identity import certificate_authority, roster
from diamond.sites.transport import relay as relay_module
from diamond.sites.transport import relay_handshake
from diamond.sites.transport.audit import Audit
from diamond.sites.transport.errors import Refused, Unreachable
from diamond.sites.transport.relay import BURST_SECONDS, RelayEnd, RelayLimits, RelayServer
from diamond.sites.transport.routes import describe_route, find_route
from diamond.sites.transport.rpc import RpcClient
from diamond.sites.transport.server import Server
from diamond.sites.transport.wire_format import MAX_REQUEST_BYTES, pack

PING = pack({"kind": "ping", "sender": 0})


@pytest.fixture(autouse=True)
def brief_idle_time(monkeypatch):
    """A relay of these tests need not wait long for sites that may come back."""
    monkeypatch.setattr(relay_module, "IDLE_SECONDS", 0.3)


def run_all(bundles, tmp_path):
    async def live(bundle):
        async with site(bundle, tmp_path / bundle.me.name) as node:
            final = await node.run()
            await node.server.finish_relaying()
            return final

    async def everyone():
        return await asyncio.gather(*map(live, bundles))

    return everyone()


def bits_of_lockstep(results):
    wanted = run_lockstep(team(), ROUNDS)
    return all(same_bits(a, b) for a, b in zip(results, wanted, strict=True))


@pytest.mark.wide
@pytest.mark.parametrize("listening", [{1}, {0, 2}, {0}])
def test_an_end_that_accepts_nothing_dials_and_the_bits_stay(tmp_path, listening):
    relays = {"hub": f"127.0.0.1:{ports(1)[0]}"} if listening == {0} else None
    bundles = found(tmp_path / "federation", listening, relays)

    async def everyone():
        async with contextlib.AsyncExitStack() as stack:
            if relays:
                folder = tmp_path / "federation" / "hub"
                server = RelayServer(folder, None, RelayLimits(), Audit(lambda line: None))
                await stack.enter_async_context(server)
            return await run_all(bundles, tmp_path)

    assert bits_of_lockstep(asyncio.run(everyone()))


def test_a_listening_site_relays_for_its_neighbours(tmp_path):
    bundles = found(tmp_path / "federation", {0}, {"site0": ""})
    assert [find_route(bundles[i], bundles[i].roster.members[j]).kind for i, j in EDGES] == [
        *("await", "dial", "await relay", "dial relay")
    ]
    assert describe_route(bundles[2], bundles[2].neighbours[0]) == "site2 dials through site0"
    lines = []

    async def everyone():
        async def live(bundle):
            async with site(bundle, tmp_path / bundle.me.name) as node:
                node.server.audit.write_line = lines.append
                final = await node.run()
                await node.server.finish_relaying()
                return final

        return await asyncio.gather(*map(live, bundles))

    assert bits_of_lockstep(asyncio.run(everyone()))
    joined = [line for line in lines if line.endswith("joined")]
    assert joined and {*joined} <= {"site1 - site2: joined", "site2 - site1: joined"}


EDGES = [(0, 1), (1, 0), (1, 2), (2, 1)]


def test_a_connection_carries_the_requests_of_both_ends_and_is_renewed(tmp_path):
    """If the connection breaks, the end that can dials again, although it has nothing to ask."""
    one, two, _ = found(tmp_path / "federation", {1, 2})

    async def attempt():
        async with site(one) as dialing, site(two) as awaiting:
            for _ in range(2):
                await awaiting.rpc.send_request(0, pack({"kind": "ping", "sender": 1}))
                await dialing.rpc.send_request(1, PING)
                (session,) = [s for s in awaiting.server.sessions if s.member.number == 0]
                assert awaiting.rpc.open_connections() == [0]
                assert [s.packets for s in dialing.server.sessions] == [
                    dialing.rpc._connections[1]._packets
                ]
                session.packets.abort(ConnectionAbortedError("broken"))
                await asyncio.sleep(0.01)

    asyncio.run(attempt())


def test_a_request_on_a_shared_connection_is_limited_and_in_the_own_name(tmp_path):
    one, two, _ = found(tmp_path / "federation", {1, 2})

    async def attempt(request):
        async with site(one), site(two) as awaiting:
            await awaiting.rpc.send_request(0, request)

    with pytest.raises(Refused, match="agent 1 asks in the name of agent 0"):
        asyncio.run(attempt(PING))
    with pytest.raises(Unreachable, match="larger than anything"):
        asyncio.run(attempt(b"\0" * (MAX_REQUEST_BYTES + 1)))


def test_an_edge_that_nobody_can_dial_needs_a_relay(tmp_path):
    with pytest.raises(ValueError, match="site1 - site2: neither end accepts connections; give"):
        found(tmp_path / "federation", {0})
    with pytest.raises(ValueError, match="site1 is to relay, so it needs an address"):
        certificate_authority.create_federation(
            *(tmp_path / "other", "trial", {"site0": "h:1", "site1": "", "site2": ""}, NETWORK),
            relays={"site1": ""},
        )


@pytest.fixture
def relayed(tmp_path):
    """A relay without keys, and the bundles of sites 1 and 2, which need it."""
    places = {"hub": f"127.0.0.1:{ports(1)[0]}"}
    folder = tmp_path / "federation"
    _, one, two = found(folder, {0}, places)
    assert {path.name for path in (folder / "hub").iterdir()} == {
        *("ca.pem", "roster.json", "roster.sig")
    }
    return folder, one, two


def asks_relay(folder, bundle, other, lines=None, seconds=1.0, **options):
    """What a relay answers to the site of `bundle`, which asks for `other`."""

    async def attempt():
        async with relay(folder, lines=lines, **options) as server:
            address = f"127.0.0.1:{server.port}"
            async with asyncio.timeout(seconds):
                await relay_handshake.join_through_relay(address, bundle, other)

    with pytest.raises((Unreachable, TimeoutError)) as error:
        asyncio.run(attempt())
    return str(error.value)


def test_a_relay_refuses_whom_the_roster_does_not_name(relayed, tmp_path):
    folder, one, two = relayed
    lines, hub = [], folder / "hub"
    stranger = found(tmp_path / "strangers", {0, 1, 2})[1]
    assert "not of this federation's authority" in asks_relay(hub, stranger, two.me, lines)
    key = certificate_authority.ec.generate_private_key(certificate_authority.ec.SECP256R1())
    assert "is not in roster 1" in asks_relay(hub, with_certificate(folder, one, key), two.me)
    expired = with_certificate(folder, one, days=-1)
    assert "expired" in asks_relay(hub, expired, two.me)
    borrowed = replace(one, key=two.key)  # a certificate without its key
    assert "proves no key" in asks_relay(hub, borrowed, two.me)
    disguised = replace(one, me=replace(one.me, name="site0"))
    assert "site1 asks in the name of site0" in asks_relay(hub, disguised, two.me)
    far = replace(two.me, name="nobody")
    assert "nobody is no neighbour of site1" in asks_relay(hub, one, far)
    assert "edges already" in asks_relay(hub, one, two.me, limits=RelayLimits(edges=0))
    assert len(lines) == 1 and lines[0].startswith("127.0.0.1:")


def test_a_recorded_request_does_not_work_again(relayed):
    """The signature covers the relay's random number, so a replay proves no key."""
    folder, one, _ = relayed
    ca, members = (folder / "hub" / "ca.pem").read_bytes(), one.roster
    hello = relay_handshake.encode_hello(one, "site2", b"1" * 32)
    assert relay_handshake.verify_hello(hello, b"1" * 32, ca, members).site == one.me
    with pytest.raises(Refused, match="proves no key"):
        relay_handshake.verify_hello(hello, b"2" * 32, ca, members)
    for damaged in (hello[:-1], b"", b"\x93\x01\x02\x03", hello.replace(b"site2", b"site0")):
        with pytest.raises(Refused):
            relay_handshake.verify_hello(damaged, b"1" * 32, ca, members)


def test_an_old_key_is_refused_by_a_relay_and_an_old_roster_is_not_taken(relayed):
    folder, one, two = relayed
    hub = folder / "hub"
    old = [(hub / name).read_bytes() for name in ("roster.json", "roster.sig")]

    async def attempt():
        async with relay(hub) as server:
            address = f"127.0.0.1:{server.port}"
            certificate_authority.renew_keys(folder, "site1")
            with pytest.raises(Unreachable, match="roster 1 is superseded"):
                await relay_handshake.join_through_relay(address, one, two.me)
            for name, content in zip(("roster.json", "roster.sig"), old):
                (hub / name).write_bytes(content)
            with pytest.raises(Unreachable, match="roster 1 is superseded"):
                await relay_handshake.join_through_relay(address, one, two.me)

    asyncio.run(attempt())
    assert "roster 1 is superseded" in asks_relay(hub, one, two.me)  # after a restart too


def test_a_site_dials_a_false_relay_again_with_pauses(relayed):
    """A relay that joins at once, to nobody: TLS fails, and only then may the next attempt come."""
    _, one, _ = relayed
    dialed = []

    async def join_to_nobody(reader, writer):
        dialed.append(1)
        await reader.readexactly(len(relay_handshake.MAGIC))
        writer.write(bytes(32))
        (length,) = relay_handshake.LENGTH.unpack(await reader.readexactly(2))
        await reader.readexactly(length)
        writer.write(relay_handshake.JOINED)
        writer.close()

    async def attempt():
        port = int(one.roster.relays["hub"].split(":")[1])
        async with await asyncio.start_server(join_to_nobody, "127.0.0.1", port), site(one):
            await asyncio.sleep(1.0)

    asyncio.run(attempt())
    assert 2 <= len(dialed) <= 8  # pauses of 0.05, 0.1, 0.2, ... seconds


def test_a_relay_sees_no_message(tmp_path, monkeypatch):
    """All bytes that the relay forwards in a run: no frame of a message, and not the bytes of x."""
    bundles, seen = found(tmp_path / "federation", {0}, {"site0": ""}), bytearray()
    forward = RelayEnd.data_received

    def record(end, data):
        seen.extend(data)
        forward(end, data)

    monkeypatch.setattr(RelayEnd, "data_received", record)
    results = asyncio.run(run_all(bundles, tmp_path))
    assert bits_of_lockstep(results) and len(seen) > 10_000
    assert b"DMND" not in seen and bytes(np.asarray(results[1].state.x)) not in seen
    assert b"site" not in seen and b"run" not in seen


@pytest.mark.parametrize("who", ["another member", "nobody"])
def test_a_wrong_relay_is_noticed_and_learns_nothing(relayed, who):
    """A relay that joins a site to another one than it asked for: TLS with the right key fails."""
    folder, _, two = relayed
    zero, asked = roster.load_bundle(folder / "site0"), []

    async def answer(sender, request):
        asked.append(sender)
        return b""

    async def lead_astray(reader, writer):
        await reader.readexactly(len(relay_handshake.MAGIC))
        writer.write(bytes(32))
        (length,) = relay_handshake.LENGTH.unpack(await reader.readexactly(2))
        await reader.readexactly(length)
        writer.write(relay_handshake.JOINED)
        if who == "nobody":
            received.append(await reader.read(10_000))
            return writer.close()
        host, port = zero.me.address.split(":")
        inner = await asyncio.open_connection(host, int(port))
        await asyncio.gather(forward(reader, inner[1]), forward(inner[0], writer))

    async def forward(reader, writer):
        while chunk := await reader.read(2**16):
            writer.write(chunk)
        writer.close()

    async def attempt():
        near = replace(zero, me=replace(zero.me, neighbours=(1, 2)))
        port = int(two.roster.relays["hub"].split(":")[1])
        async with (
            Server(near, answer),
            await asyncio.start_server(lead_astray, "127.0.0.1", port),
            RpcClient(two, MAX_REQUEST_BYTES, SHORT_TIMEOUTS) as client,
        ):
            await client.send_request(1, pack({"kind": "secret", "sender": 2}))

    received = []
    with pytest.raises(Unreachable) as error:
        asyncio.run(attempt())
    if who == "another member":
        assert str(error.value) == "its key is not the one in the roster"
    assert asked == [] and not any(b"secret" in content for content in received)


def test_a_relay_limits_bytes_and_rate(relayed):
    folder, one, two = relayed
    content = b"\0" * 2 * 10**6

    async def transfer(limits, lines):
        async with relay(folder / "hub", limits, lines) as server:
            address = f"127.0.0.1:{server.port}"
            join = relay_handshake.join_through_relay
            ends = await asyncio.gather(join(address, one, two.me), join(address, two, one.me))
            (_, sending), (reading, writer) = [
                await asyncio.open_connection(sock=end) for end in ends
            ]
            started = asyncio.get_running_loop().time()
            sending.write(content)
            received = await reading.read(1)
            with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
                received += await reading.readexactly(len(content) - 1)
            seconds = asyncio.get_running_loop().time() - started
            sending.close(), writer.close()
            await asyncio.sleep(0.05)
            return len(received), seconds

    lines = []
    limits = RelayLimits(bytes_per_second=4e6)
    count, seconds = asyncio.run(transfer(limits, lines))
    at_once = 4e6 * BURST_SECONDS + 2**18  # and the last part that is read
    assert count == len(content) and seconds > 0.95 * (len(content) - at_once) / 4e6
    assert "2000000 bytes" in lines[-1] or "2000000 from" in lines[-1]
    lines.clear()
    count, _ = asyncio.run(transfer(RelayLimits(bytes_per_day=1e5), lines))
    assert count < len(content) and any("no more bytes on this day" in line for line in lines)


def test_names_and_ipv6_are_addresses(tmp_path):
    """A site listens at ::1, another at localhost, and they reach each other."""
    first, second = ports(2)
    places = {"site0": f"[::1]:{first}", "site1": f"localhost:{second}", "site2": ""}
    made = certificate_authority.create_federation(
        tmp_path / "federation", "trial", places, diamond.network.path(3)
    )
    bundles = [roster.load_bundle(place) for place in made.values()]
    assert bits_of_lockstep(asyncio.run(run_all(bundles, tmp_path)))
