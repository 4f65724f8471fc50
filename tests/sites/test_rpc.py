"""Sites over real sockets: who is refused and why, and the bits of the rehearsal."""

import asyncio
import ssl

import numpy as np
import pytest
from crash_cluster import ROUNDS, team
from cryptography.hazmat.primitives.asymmetric import ec
from helpers import same_bits
from lockstep_agents import run_lockstep
from tls_sites import (
    SHORT_TIMEOUTS,
    federation,
    largest_layout,
    refusal,
    running_site,
    with_certificate,
    with_changes,
)

import diamond
from diamond.engine.site_run import SiteSettings, run
from diamond.sites.identity import private_keys, roster
from diamond.sites.identity.handshake import compute_digests
from diamond.sites.transport.errors import Refused, Unreachable
from diamond.sites.transport.messages import MessageRequest
from diamond.sites.transport.rpc import RpcClient
from diamond.sites.transport.server import Server
from diamond.sites.transport.timeouts import NeighbourTimeout, Timeouts
from diamond.sites.transport.wire_format import (
    MAX_REQUEST_BYTES,
    Envelope,
    encode,
    max_frame_bytes,
    pack,
    unpack,
)


def test_three_sites_over_tls_end_in_the_bits_of_the_rehearsal(tmp_path):
    bundles = federation(tmp_path / "federation")

    async def live(bundle):
        async with running_site(bundle, tmp_path / bundle.me.name) as node:
            return await node.run()

    async def everyone():
        return await asyncio.gather(*map(live, bundles))

    found = asyncio.run(everyone())
    assert all(same_bits(a, b) for a, b in zip(found, run_lockstep(team(), ROUNDS), strict=True))


def test_a_site_that_dies_and_returns_changes_nothing(tmp_path):
    bundles = federation(tmp_path / "federation")

    async def live(bundle):
        place = tmp_path / bundle.me.name
        if bundle.me.number == 1:
            async with running_site(bundle, place) as node:
                doomed = asyncio.ensure_future(node.run())
                while not list(place.glob("checkpoint/*4.json")):
                    await asyncio.sleep(0.01)
                doomed.cancel()
            await asyncio.sleep(0.5)
        async with running_site(bundle, place) as node:
            return await node.run()

    async def everyone():
        return await asyncio.gather(*map(live, bundles))

    found = asyncio.run(everyone())
    assert all(same_bits(a, b) for a, b in zip(found, run_lockstep(team(), ROUNDS), strict=True))


@pytest.fixture
def places(tmp_path):
    folder = tmp_path / "federation"
    return folder, *federation(folder)


def test_another_authority_is_refused(places, tmp_path):
    _, one, two, _ = places
    stranger = federation(tmp_path / "other")[0]
    imposter = with_changes(one, certificate=stranger.certificate, key=stranger.key)
    assert refusal(two, imposter)[0] is Unreachable
    trusting_another = with_changes(one, ca=stranger.ca)
    kind, reason = refusal(two, trusting_another)
    assert kind is Unreachable and "not of this federation's authority" in reason


def test_an_expired_certificate_is_refused(places):
    folder, one, two, _ = places
    assert refusal(two, with_certificate(folder, one, days=-1))[0] is Unreachable
    kind, reason = refusal(with_certificate(folder, two, days=-1), one)
    assert kind is Unreachable and "has expired" in reason


def test_a_key_that_is_not_in_the_roster_is_refused_at_both_ends(places):
    folder, one, two, _ = places
    new = ec.generate_private_key(ec.SECP256R1())
    kind, reason = refusal(two, with_certificate(folder, one, new))
    assert kind is Refused and "is not in roster 1 of site1" in reason
    kind, reason = refusal(with_certificate(folder, two, new), one)
    assert kind is Unreachable and reason == "its key is not the one in the roster"


def test_a_member_that_is_no_neighbour_is_refused(places):
    _, one, _, three = places
    reaching = with_changes(three, me=roster.Member(**{**vars(three.me), "neighbours": (0, 1)}))
    assert refusal(one, reaching) == (Refused, "site2 is no neighbour of site0")


def test_a_request_in_the_name_of_another_site_is_refused(places):
    _, one, two, _ = places
    request = MessageRequest("any", 2, 0, 0).encode()
    kind, reason = refusal(two, one, request)
    assert kind is Refused and "agent 0 asks in the name of agent 2" in reason


def test_another_configuration_is_refused(places):
    _, one, two, _ = places
    kind, reason = refusal(two, one, MessageRequest("beef", 0, 0, 0).encode())
    assert kind is Refused and "agent 1 runs something else" in reason


def test_a_request_for_a_discarded_or_nonexistent_round_is_refused(places):
    _, one, two, _ = places

    async def attempt(round):
        async with running_site(two) as node:
            node.service.outbox.durable[0] = node.service.outbox.durable[2] = 4
            async with RpcClient(one, max_frame_bytes(largest_layout()), SHORT_TIMEOUTS) as caller:
                await caller.send_request(1, MessageRequest(node.run_digest, 0, round, 0).encode())

    with pytest.raises(Refused, match="agent 1: round 3 is no longer kept, only rounds from 4 on"):
        asyncio.run(attempt(3))
    with pytest.raises(Refused, match=f"round {ROUNDS + 1} is not to come; the run has {ROUNDS}"):
        asyncio.run(attempt(ROUNDS + 1))


@pytest.mark.wide
def test_a_replayed_message_of_another_round_is_not_accepted(places):
    """A neighbour that replays an old message is asked again, and named when patience ends."""
    _, one, two, _ = places
    agent = team()[1]
    sent = [np.zeros(*a[::-1]) for a in largest_layout()]
    old = encode(Envelope(compute_digests(agent, ROUNDS)["run"], 1, 3), sent)

    async def replay(sender, request):
        greets = unpack(request, MAX_REQUEST_BYTES)[0]["kind"] == "hello"
        return pack({"kind": "hello", "durable": 0}) if greets else old

    async def attempt():
        async with Server(two, replay), running_site(one, timeouts=Timeouts(1.0, 1.0, 1.0)) as node:
            await node.run()

    with pytest.raises(NeighbourTimeout, match=r"of agent 1 .round is 3 where 0 belongs"):
        asyncio.run(attempt())


def test_an_oversized_request_or_answer_is_refused(places):
    _, one, two, _ = places
    kind, reason = refusal(two, one, b"\0" * 10**6)
    assert kind is Unreachable and "larger" in reason

    async def huge(sender, request):
        return b"\0" * (max_frame_bytes(largest_layout()) + 1)

    async def attempt():
        async with (
            Server(two, huge),
            RpcClient(one, max_frame_bytes(largest_layout()), SHORT_TIMEOUTS) as caller,
        ):
            await caller.send_request(1, b"anything")

    with pytest.raises(Unreachable, match="larger than any message of this run"):
        asyncio.run(attempt())


def test_no_certificate_and_no_tls_are_refused(places):
    """Neither gets a byte of an answer: the connection is closed."""
    _, one, two, _ = places
    nameless = ssl.create_default_context(cadata=one.ca.decode())
    name, (host, port) = (
        roster.certificate_name(two.me.fingerprint),
        two.me.address.split(":"),
    )
    for options in ({"ssl": nameless, "server_hostname": name}, {}):

        async def attempt(options=options):
            async with running_site(two):
                reader, writer = await asyncio.open_connection(host, int(port), **options)
                try:
                    writer.write(b"GET / HTTP/1.1\r\n\r\n")
                    return await asyncio.wait_for(reader.read(), 3)
                except (ConnectionError, ssl.SSLError):
                    return b""
                finally:
                    writer.transport.abort()

        assert asyncio.run(attempt()) == b""


@pytest.mark.parametrize("latest", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_only_tls_1_3_is_accepted(places, tmp_path, latest):
    _, one, two, _ = places
    context = ssl.create_default_context(cadata=one.ca.decode())
    (tmp_path / "pair.pem").write_bytes(one.certificate + one.key)
    context.load_cert_chain(tmp_path / "pair.pem")
    context.set_alpn_protocols(["h2"])
    context.maximum_version = latest
    host, port = two.me.address.split(":")

    async def version():
        async with running_site(two):
            name = roster.certificate_name(two.me.fingerprint)
            _, writer = await asyncio.open_connection(
                host, int(port), ssl=context, server_hostname=name
            )
            spoken = writer.get_extra_info("ssl_object").version()
            writer.close()
            return spoken

    if latest is ssl.TLSVersion.TLSv1_2:
        with pytest.raises((ConnectionError, ssl.SSLError)):
            asyncio.run(version())
    else:
        assert asyncio.run(version()) == "TLSv1.3"


@pytest.mark.wide
def test_a_site_that_does_not_listen_is_awaited_and_then_named(places):
    _, one, _, _ = places

    async def alone():
        async with running_site(
            one, timeouts=Timeouts(connect=0.2, round=1.0, give_up=1.0)
        ) as node:
            await node.run()

    with pytest.raises(
        NeighbourTimeout, match=r"for the greeting of agent 1 \(nothing listens there\)"
    ):
        asyncio.run(alone())


def test_a_changed_roster_or_a_missing_file_is_refused(places):
    folder, *_ = places
    path = folder / "site0" / "roster.json"
    original = path.read_bytes()
    path.write_bytes(original.replace(b"127.0.0.1", b"127.0.0.2", 1))
    with pytest.raises(private_keys.BadBundle, match="is not what the authority"):
        roster.load_bundle(folder / "site0")
    path.unlink()
    with pytest.raises(private_keys.BadBundle, match="no whole bundle"):
        roster.load_bundle(folder / "site0")


def test_keys_can_be_read_by_their_owner_only(places):
    folder, *_ = places
    for path in (folder / "ca.key", folder / "site0" / "agent.key"):
        assert path.stat().st_mode & 0o777 == 0o600


def test_a_network_that_is_not_the_rosters_is_refused(places, tmp_path):
    folder, *_ = places
    agent = team()[0]
    with pytest.raises(ValueError, match="neighbours site1, site2, the roster site1; use"):
        run(
            agent.problem,
            diamond.network.ring(3),
            agent.algorithm,
            SiteSettings(rounds=ROUNDS),
            bundle=folder / "site0",
            folder=tmp_path / "run",
        )
