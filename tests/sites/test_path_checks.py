"""What a site's doctor finds: each cause is made, and named in one line."""

import asyncio
import contextlib
import socket
import time
from dataclasses import replace

import pytest
from tls_sites import ports

import diamond
from diamond.sites.identity import handshake, roster
from diamond.sites.identity.certificate_authority import create_federation
from diamond.sites.transport import path_checks
from diamond.sites.transport.audit import Audit
from diamond.sites.transport.messages import Pong
from diamond.sites.transport.path_checks import check_machine, check_paths
from diamond.sites.transport.relay import RelayLimits, RelayServer
from diamond.sites.transport.server import Server
from diamond.sites.transport.timeouts import Timeouts

LIMITS = Timeouts(0.5, 0.8)


@pytest.fixture
def sites(tmp_path):
    """a and b with addresses, c without one and linked to both."""
    first, second = ports(2)
    places = {"a": f"127.0.0.1:{first}", "b": f"127.0.0.1:{second}", "c": ""}
    bundles = create_federation(tmp_path / "trial", "trial", places, diamond.network.ring(3))
    return [roster.load_bundle(folder) for folder in bundles.values()]


def moved(bundle, number, address):
    """The bundle with another address of a member."""
    members = list(bundle.roster.members)
    members[number] = replace(members[number], address=address)
    return replace(bundle, roster=replace(bundle.roster, members=tuple(members)))


async def examined(bundle, address="", other=None, answer=None):
    """The report of a site, while `other` answers."""
    async with contextlib.AsyncExitStack() as stack:
        if other is not None:
            await stack.enter_async_context(Server(other, answer))
        return await check_paths(bundle, {}, LIMITS, address)


def test_each_step_to_a_neighbour_is_a_cause_of_its_own(sites):
    a, _, c = sites

    async def all_causes():
        unknown = await examined(moved(c, 1, "no-such-host.invalid:7101"))
        with socket.create_server(("127.0.0.1", 0)) as silent:
            place = f"127.0.0.1:{silent.getsockname()[1]}"
            mute = await examined(moved(c, 1, place))
            occupied = await examined(c, place)
        return unknown, mute, occupied

    unknown, mute, occupied = asyncio.run(all_causes())
    assert unknown.edges["b"].endswith("DNS: no machine of the name no-such-host.invalid is known")
    assert unknown.edges["a"] == f"{a.me.address}: port: nothing listens there"
    assert mute.edges["b"].split(": ", 1)[1].startswith("the port is open; no ")
    assert "cannot be listened on" in occupied.machine["port"] and not occupied.is_good


@pytest.mark.parametrize(
    ("ahead", "versions", "part", "words"),
    [
        (0.0, {}, None, None),
        (3600.0, {}, "clock", "that of b is 1 h 0 min ahead: set the clock that is wrong"),
        (-3600.0, {}, "clock", "that of b is 1 h 0 min behind"),
        (0.0, {"jax": "0.1\n"}, "versions", r"b has jax 0.1\n ("),
    ],
)
def test_clocks_and_versions_are_compared(sites, ahead, versions, part, words):
    _, b, c = sites

    async def answer(sender, request):
        own = handshake.installed_versions()
        return Pong(time.time() + ahead, own | versions).encode()

    report = asyncio.run(examined(c, other=b, answer=answer))
    assert report.edges["b"] == "good"
    assert {name for name, text in report.machine.items() if text != "good"} == {part} - {None}
    assert part is None or words in report.machine[part]


def test_an_earlier_version_tells_no_clock(sites):
    _, b, c = sites

    async def answer(sender, request):
        return Pong().encode()

    report = asyncio.run(examined(c, other=b, answer=answer))
    assert report.edges["b"] == "good" and "clock" not in report.machine


def test_a_relay_is_told_from_what_else_listens(tmp_path):
    (hub,) = ports(1)
    places, relays = {"a": "h:1", "b": "", "c": ""}, {"hub": f"127.0.0.1:{hub}"}
    network = diamond.network.ring(3)
    create_federation(tmp_path / "trial", "trial", places, network, relays=relays)
    bundle, found = roster.load_bundle(tmp_path / "trial" / "b"), []

    async def thrice():
        found.append(await examined(bundle))
        with socket.create_server(("127.0.0.1", hub)):
            found.append(await examined(bundle))
        audit = Audit(lambda line: None)
        async with RelayServer(tmp_path / "trial" / "hub", None, RelayLimits(), audit):
            found.append(await examined(bundle))

    asyncio.run(thrice())
    absent, other, good = (report.relays["hub"] for report in found)
    assert absent.endswith("port: nothing listens there") and good == "good"
    assert "no answer within 0.5 s; `diamond net relay` is to listen there" in other


def test_too_little_room_is_a_cause(tmp_path, monkeypatch):
    assert check_machine(tmp_path, 2**23, 2**20) == {"disk": "good", "memory": "good"}
    monkeypatch.setattr(path_checks, "available_memory", lambda: 2**20)
    found = check_machine(tmp_path, 2**62, 2**21)
    assert "MB are left, and the run needs" in found["disk"] and str(tmp_path) in found["disk"]
    assert "1.05 MB are free, and messages alone need 2.1 MB" in found["memory"]
