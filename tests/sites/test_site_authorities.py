"""Certificates of an institution's PKI, made by openssl: accepted for the site that they name."""

import asyncio
import datetime
import json
import os
import shutil
from dataclasses import replace

import pytest
from federations import command, start_site, trial
from openssl_pki import P384, RSA, Pki
from tls_sites import SHORT_TIMEOUTS, ports

import diamond
from diamond.config.federation_file import load
from diamond.sites.identity import site_authorities
from diamond.sites.identity.certificate_authority import create_federation, renew_keys
from diamond.sites.identity.certificate_holder import find_holder
from diamond.sites.identity.credentials import Credentials
from diamond.sites.identity.private_keys import BadBundle
from diamond.sites.identity.roster import check_expiry, decode_roster, load_bundle, load_roster
from diamond.sites.identity.roster_changes import change_members
from diamond.sites.rounds.overview import new_query, sign_status, verify_status
from diamond.sites.transport.errors import Refused, Unreachable
from diamond.sites.transport.messages import Ping, Pong
from diamond.sites.transport.relay_handshake import encode_hello, verify_hello
from diamond.sites.transport.rpc import RpcClient
from diamond.sites.transport.server import Server

__all__ = ["command", "trial"]
if shutil.which("openssl") is None:
    pytest.skip("needs the program openssl", allow_module_level=True)

NORTH, SOUTH = "north.hospital.example", "spiffe://clinic/south"
TERMS = {"rounds": 20, "network": {"graph": "path", "agents": 3}}
EXPIRED = "-startdate", "20200101000000Z", "-enddate", "20200201000000Z"


@pytest.fixture(scope="module")
def pkis(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pki")
    return Pki(folder / "hospital", "hospital"), Pki(folder / "clinic", "clinic")


@pytest.fixture
def found(tmp_path, pkis):
    """north of one PKI, south of another, west with a key of the federation."""
    places = zip(("north", "south", "west"), ports(3))
    sites = {name: f"127.0.0.1:{port}" for name, port in places}
    names = ("hospital", "clinic")
    create_federation(
        tmp_path / "trial",
        "trial",
        sites,
        diamond.network.path(3),
        TERMS,
        authorities={n: site_authorities.read_authority(n, p.chain) for n, p in zip(names, pkis)},
        subjects={"north": ("hospital", f"dns:{NORTH}"), "south": ("clinic", f"uri:{SOUTH}")},
    )
    return tmp_path / "trial"


def install(found, site, issued, crl=None):
    """Put certificate, key and list into the bundle of a site, and load it."""
    certificate, key = issued
    shutil.copy(certificate, found / site / "agent.pem")
    shutil.copy(key, found / site / "agent.key")
    os.chmod(found / site / "agent.key", 0o600)
    if crl is not None:
        shutil.copy(crl, found / site / "crl.pem")
    return load_bundle(found / site)


async def ask(client, other):
    """A request of one bundle to another, and its answer."""

    async def answer(sender, request):
        return Pong().encode()

    async with Server(other, answer):
        async with RpcClient(client, 2**17, SHORT_TIMEOUTS) as caller:
            return Pong.read(
                await caller.send_request(other.me.number, Ping(client.me.number).encode())
            )


def refusal(client, other):
    with pytest.raises((Refused, Unreachable)) as error:
        asyncio.run(ask(client, other))
    return str(error.value)


def test_sites_of_two_institutions_and_of_the_federation_talk_to_each_other(found, pkis):
    north = install(found, "north", pkis[0].issue("north", f"DNS:{NORTH}", P384))
    south = install(found, "south", pkis[1].issue("south", f"URI:{SOUTH}"))
    west = load_bundle(found / "west")
    assert [b.me.number for b in (north, south, west)] == [0, 1, 2]
    for one, other in ((north, south), (south, north), (south, west), (west, south)):
        assert asyncio.run(ask(one, other)) == Pong()
    query = new_query()
    status = {"agent": 0, "round": 1, "rounds": 9, "state": "on", "waiting": []}
    status |= {"away": [], "connected": []}
    record = sign_status(north, query, status)
    assert verify_status(west, query, record)["agent"] == 0
    hello = encode_hello(north, "south", b"1" * 32)
    assert verify_hello(hello, b"1" * 32, west.ca, west.roster).site == north.me
    assert "expires on" in check_expiry(
        install(found, "north", pkis[0].issue("brief", f"DNS:{NORTH}", dates=dates(days=1)))
    )


def dates(days, since=-10):
    """A certificate that is valid since so many days, and for so many from now."""
    now = datetime.datetime.now(datetime.UTC)
    moment = lambda days: f"{now + datetime.timedelta(days=days):%Y%m%d%H%M%SZ}"
    return "-startdate", moment(since), "-enddate", moment(days)


def test_an_expired_certificate_is_refused(found, pkis):
    south = install(found, "south", pkis[1].issue("south2", f"URI:{SOUTH}"))
    expired = install(found, "north", pkis[0].issue("old", f"DNS:{NORTH}", dates=EXPIRED))
    with pytest.raises(BadBundle, match="north expired on 2020-02-01"):
        check_expiry(expired)
    issued = pkis[0].issue("early", f"DNS:{NORTH}", dates=dates(9, since=3))
    with pytest.raises(BadBundle, match=r"valid from .*, and this machine's clock says .*: set it"):
        check_expiry(install(found, "north", issued))
    assert refusal(expired, south) and "expired" in refusal(south, expired)
    with pytest.raises(Refused, match="expired"):
        verify_hello(encode_hello(expired, "south", b"1" * 32), b"1" * 32, south.ca, south.roster)


def test_a_revoked_certificate_is_refused_as_soon_as_the_list_is_there(found, pkis):
    issued = pkis[0].issue("stolen", f"DNS:{NORTH}")
    north, south = (
        install(found, "north", issued),
        install(found, "south", pkis[1].issue("south3", f"URI:{SOUTH}")),
    )
    query = new_query()
    record = sign_status(north, query, {"agent": 0, "waiting": []})
    credentials, closed = Credentials(south), []

    async def revoke_while_connected():
        async def answer(sender, request):
            return Pong().encode()

        server = Server(credentials, answer)
        async with server, RpcClient(north, 2**17, SHORT_TIMEOUTS) as caller:
            await caller.send_request(1, Ping(0).encode())
            shutil.copy(pkis[0].revoke(issued[0]), found / "south" / "crl.pem")
            credentials.renew(load_bundle(found / "south"))
            closed.extend(server.audit.counts)
            with pytest.raises((Refused, Unreachable)) as error:
                for _ in range(3):  # the first may find that its connection was closed
                    await caller.send_request(1, Ping(0).encode())
                    await asyncio.sleep(0.05)
            return str(error.value)

    asyncio.run(revoke_while_connected())
    assert closed  # the open connection was
    south = load_bundle(found / "south")
    assert refusal(north, south) == "its certificate was revoked by its authority"
    assert refusal(south, north) == "its certificate was revoked by its authority"
    with pytest.raises(Refused, match="revoked"):
        verify_status(south, query, record)
    with pytest.raises(BadBundle, match=r"agent\.pem was revoked"):
        install(found, "north", issued, found / "south" / "crl.pem")
    (found / "north" / "crl.pem").unlink()
    again = install(found, "north", pkis[0].issue("again", f"DNS:{NORTH}"))
    assert asyncio.run(ask(again, south)) == Pong()


def test_an_authority_vouches_for_its_own_sites_and_for_the_listed_names_only(found, pkis):
    west = load_bundle(found / "west")
    hospital, clinic = pkis
    assert west.roster.by_name("south").subject == f"uri:{SOUTH}"
    cases = {
        "another institution's name": hospital.issue("thief", f"URI:{SOUTH}"),
        "no name of the roster": clinic.issue("stranger", "URI:spiffe://clinic/other"),
        "a claim of diamond": clinic.issue("claim", "URI:urn:diamond:trial:south:99"),
        "the name as a common name": clinic.issue("cn", "", common_name=SOUTH.split("//")[1][-5:]),
    }
    for certificate, key in cases.values():
        loaded = site_authorities.x509.load_pem_x509_certificate(certificate.read_bytes())
        assert find_holder(loaded, west.roster) is None
        with pytest.raises(BadBundle, match="is not in the roster, nor is a name"):
            install(found, "south", (certificate, key))
        impostor = replace(  # who does not check their own bundle
            west,
            certificate=certificate.read_bytes(),
            key=key.read_bytes(),
            me=west.roster.members[1],
        )
        assert "is not in roster 1 of west" in refusal(impostor, west)


def test_only_listed_certificates_issue_those_of_sites(found, pkis, tmp_path):
    """An authority below the listed root that is not listed itself issues none."""
    west, hospital = load_bundle(found / "west"), pkis[0]
    only_root = site_authorities.read_authority("hospital", hospital.folder / "root.pem")
    roster = replace(west.roster, authorities=west.roster.authorities | {"hospital": only_root})
    certificate, _ = hospital.issue("below", f"DNS:{NORTH}")
    loaded = site_authorities.x509.load_pem_x509_certificate(certificate.read_bytes())
    assert find_holder(loaded, west.roster).name == "north"
    assert find_holder(loaded, roster) is None
    with pytest.raises(BadBundle, match="the issuer of CN=hospital issuing is missing; list the"):
        site_authorities.read_authority("hospital", hospital.folder / "issuing.pem")
    with pytest.raises(BadBundle, match="CN=below may issue no certificates"):
        site_authorities.read_authority("hospital", certificate)
    (tmp_path / "none.pem").write_text("nothing")
    with pytest.raises(BadBundle, match="has no certificates in PEM"):
        site_authorities.read_authority("hospital", tmp_path / "none.pem")


def test_what_is_of_no_use_for_a_site_is_refused_with_a_remedy(found, pkis):
    hospital, clinic = pkis
    with pytest.raises(BadBundle, match="is not elliptic: have it issued for P-256 or P-384"):
        install(found, "north", hospital.issue("rsa", f"DNS:{NORTH}", RSA))
    with pytest.raises(BadBundle, match="issued with serverAuth and clientAuth"):
        install(found, "north", hospital.issue("web", f"DNS:{NORTH}", uses="serverAuth"))
    issued = hospital.issue("fine", f"DNS:{NORTH}", uses="")
    other = Pki(clinic.folder / "other", "other")
    with pytest.raises(BadBundle, match=r"crl\.pem has a list of CN=other issuing that no auth"):
        install(found, "north", issued, other.list_revoked())
    (found / "north" / "crl.pem").write_text("-----BEGIN X509 CRL-----\n!\n-----END X509 CRL-----")
    with pytest.raises(BadBundle, match=r"crl\.pem cannot be read"):
        load_bundle(found / "north")
    with pytest.raises(BadBundle, match="the certificates of north come from hospital: renew them"):
        renew_keys(found, "north")
    assert list(renew_keys(found)) == ["west"]


def test_a_joining_site_has_its_own_authority_and_a_name_stands_for_one_member(found, pkis):
    places = {m.name: m.address for m in load_roster(found).members} | {"east": "127.0.0.1:9"}
    network = diamond.network.path(4), {"graph": "path", "agents": 4}
    named = {m.name: (m.authority, m.subject) for m in load_roster(found).members if m.subject}
    named |= {"east": ("hospital", "dns:east.hospital.example")}
    bundles = change_members(found, places, *network, 5, subjects=named)
    assert list(bundles) == ["east"] and not (bundles["east"] / "agent.key").exists()
    member = load_roster(found).by_name("east")
    assert (member.authority, member.subject, member.fingerprint) == (*named["east"], "")
    other = named | {"west": ("hospital", "dns:west.hospital.example")}
    with pytest.raises(ValueError, match="west is a member by another authority or name in its"):
        change_members(found, places, *network, 9, subjects=other)
    places = {name: places[name] for name in ("south", "west", "east", "north")}
    with pytest.raises(BadBundle, match="certificate of north has the name of a member"):
        change_members(found, places, *network, 9, subjects=named, rejoining=["north"])


def test_rosters_without_such_authorities_have_the_earlier_format(found, tmp_path):
    create_federation(
        tmp_path / "plain", "plain", {"a": "h:1", "b": "h:2"}, diamond.network.path(2)
    )
    document = json.loads((tmp_path / "plain" / "roster.json").read_bytes())
    assert {*document} == {"federation", "members", "terms", "version", "relays"}
    earlier = {"number", "name", "address", "fingerprint", "neighbours"}
    assert {*document["members"][0]} == earlier | {"relay", "retired", "retired_until"}
    content = load_roster(found).encode()
    assert decode_roster(content) == load_roster(found)
    for change, reason in (
        ({"authorities": {}}, "authority that it does not list"),
        ({"authorities": {"hospital": ["no PEM"]}}, "cannot be read"),
        ({"authorities": {"hospital": [], "clinic": []}}, "has no certificates"),
    ):
        with pytest.raises(BadBundle, match=reason):
            decode_roster(json.dumps(json.loads(content) | change).encode())
    document = json.loads(content)
    document["members"][2]["subject"], document["members"][2]["authority"] = "dns:a", "clinic"
    with pytest.raises(BadBundle, match="without one key or one name"):
        decode_roster(json.dumps(document).encode())


def own_authority(trial, command, hospital):
    """Found the federation of the fixture again, north with a certificate of its hospital."""
    shutil.rmtree(trial / "trial")
    file = trial / "trial.toml"
    shutil.copy(hospital.chain, trial / "hospital.pem")
    tables = f'[authorities]\nhospital = "hospital.pem"\n[subjects.hospital]\nnorth = "dns:{NORTH}"'
    file.write_text(f"{file.read_text()}\n{tables}\n")
    return command("init", file, "--out", trial / "trial")


def test_the_file_of_a_federation_names_authorities_and_all_mistakes(trial, command, pkis):
    done = own_authority(trial, command, pkis[0])
    assert done.exit_code == 0, done.output
    text = " ".join(done.stderr.split())
    assert f"north: put agent.pem, a certificate of hospital for dns:{NORTH}, and" in text
    assert not (trial / "trial" / "north" / "agent.key").exists()
    install(trial / "trial", "north", pkis[0].issue("file", f"DNS:{NORTH}"))
    federation = load(trial / "trial.toml")
    (trial / "again.toml").write_text(federation.to_toml())
    assert load(trial / "again.toml") == federation
    text = (trial / "trial.toml").read_text()
    for old, new, mistake in (
        ("[subjects.hospital]", "[subjects.clinic]", "there is no such authority"),
        ('north = "dns:', 'nobody = "dns:', "nobody is no site"),
        ("dns:", "mail:", "subjects.hospital.north"),
        ("rounds = 60", "rounds = 60\nsigned = true", "proofs name a site by a certificate of the"),
        (f'north = "dns:{NORTH}"', 'north = "dns:a"\nsouth = "dns:a"', "two sites have one name"),
    ):
        assert old in text
        (trial / "bad.toml").write_text(text.replace(old, new))
        found = command("init", trial / "bad.toml", "--out", trial / "bad")
        assert found.exit_code == 2 and mistake in found.stderr, found.output
    (trial / "hospital.pem").unlink()
    found = command("init", trial / "trial.toml", "--out", trial / "bad")
    assert found.exit_code == 2 and "has no certificates in PEM (FileNotFoundError" in found.stderr


@pytest.mark.slow
def test_real_sites_run_one_of_them_with_certificates_of_its_own_authority(trial, command, pkis):
    assert own_authority(trial, command, pkis[0]).exit_code == 0
    install(trial / "trial", "north", pkis[0].issue("real", f"DNS:{NORTH}", P384))
    processes = {name: start_site(trial, name) for name in ("north", "south", "west")}
    try:
        ends = {n: json.loads(p.communicate(timeout=120)[0]) for n, p in processes.items()}
    finally:
        for process in processes.values():
            process.kill()
    assert {end["round"] for end in ends.values()} == {60}
