"""New keys while rounds go on: no restart, the same bits, and old keys and rosters are refused."""

import asyncio
import shutil
from dataclasses import replace

import pytest
from crash_cluster import ROUNDS, team
from dialing_sites import found, site
from helpers import same_bits
from lockstep_agents import run_lockstep
from tls_sites import with_certificate

from diamond.sites.identity import certificate_authority, roster
from diamond.sites.identity.certificate_holder import find_holder, read_claim
from diamond.sites.identity.credentials import Credentials
from diamond.sites.identity.private_keys import BadBundle
from diamond.sites.identity.roster import load_bundle
from diamond.sites.transport.audit import Audit
from diamond.sites.transport.errors import Refused, Unreachable
from diamond.sites.transport.wire_format import pack

PING = pack({"kind": "ping", "sender": 0})


def certificate(bundle):
    return roster.x509.load_pem_x509_certificate(bundle.certificate)


@pytest.mark.wide(keep=["listening1"])
@pytest.mark.parametrize("listening", [{0, 1, 2}, {1}])
def test_keys_renewed_in_mid_run_change_nothing(tmp_path, listening):
    """Sites take the new files one after another, and every connection is made again each time."""
    authority, wanted = tmp_path / "federation", run_lockstep(team(), ROUNDS)
    bundles = found(authority, listening)
    sites, resumed = {}, asyncio.Event()

    async def live(bundle):
        place = tmp_path / bundle.me.name
        shutil.copytree(authority / bundle.me.name, place)
        credentials = Credentials(bundle)
        async with site(credentials) as node:
            sites[bundle.me.number] = node, credentials, place
            run_round = node._run_round

            async def waiting(progress):
                if progress.t == 3:
                    await resumed.wait()
                return await run_round(progress)

            node._run_round = waiting
            node.server.start_task(credentials.watch(place, Audit(lambda line: None), 0.02))
            return await node.run()

    async def renew():
        while len(sites) < 3 or any(node.t < 3 for node, *_ in sites.values()):
            await asyncio.sleep(0.01)
        certificate_authority.renew_keys(authority, overlap=3600.0)
        for _, credentials, place in sites.values():
            shutil.copytree(authority / place.name, place, dirs_exist_ok=True)
            while credentials.bundle.roster.version == 1:
                await asyncio.sleep(0.01)
            for other, *_ in sites.values():
                for session in list(other.server.sessions):
                    session.packets.abort(ConnectionAbortedError("made again"))
            for i, j in ((0, 1), (1, 0), (1, 2), (2, 1)):
                await answered(sites[i][0].rpc, i, j)
        resumed.set()

    async def answered(client, i, j):
        while True:
            try:
                return await client.send_request(j, pack({"kind": "ping", "sender": i}))
            except Unreachable:
                await asyncio.sleep(0.05)

    async def everyone():
        *results, _ = await asyncio.gather(*map(live, bundles), renew())
        return results

    results = asyncio.run(everyone())
    assert all(same_bits(a, b) for a, b in zip(results, wanted, strict=True))
    for old, (_, credentials, _) in zip(bundles, (sites[i] for i in range(3))):
        assert credentials.bundle.key != old.key and credentials.bundle.roster.version == 2


def test_a_revoked_key_loses_its_open_connection(tmp_path):
    one, two, _ = found(tmp_path, {0, 1, 2})

    async def attempt():
        credentials = Credentials(two)
        async with site(one) as stolen, site(credentials) as node:
            await stolen.rpc.send_request(1, PING)
            certificate_authority.renew_keys(tmp_path, "site0")  # without overlap
            credentials.renew(load_bundle(tmp_path / "site1"))
            await asyncio.sleep(0.05)
            assert node.server.sessions == []
            with pytest.raises(Refused, match="roster 1 is superseded"):
                await stolen.rpc.send_request(1, PING)

    asyncio.run(attempt())


def test_an_older_or_foreign_bundle_is_not_taken(tmp_path):
    one, two, _ = found(tmp_path / "federation", {0, 1, 2})
    certificate_authority.renew_keys(tmp_path / "federation")
    new = load_bundle(tmp_path / "federation" / "site0")
    credentials = Credentials(new)
    with pytest.raises(BadBundle, match="roster 1 is older than 2, which this site has"):
        credentials.renew(one)
    for foreign in (found(tmp_path / "other", {0, 1, 2})[0], two):
        with pytest.raises(BadBundle, match="another federation, site, network or run"):
            credentials.renew(replace(foreign, roster=replace(foreign.roster, version=2)))
    with pytest.raises(BadBundle, match="do not belong together"):
        credentials.renew(replace(new, key=one.key))
    assert credentials.bundle is new


def test_who_holds_a_certificate(tmp_path):
    """Current and overlapping keys by the roster; newer ones by the authority's word; no others."""
    one = found(tmp_path, {0, 1, 2})[0]
    claim = read_claim(certificate(one))
    assert claim == ("trial", "site0", 1, None)
    certificate_authority.renew_keys(tmp_path, "site0", overlap=3600.0)
    new = load_bundle(tmp_path / "site0")
    assert find_holder(certificate(new), one.roster).name == "site0"  # newer than this roster
    assert find_holder(certificate(one), new.roster).name == "site0"  # for an hour
    passed = replace(new.me, retired_until=1.0)
    expired = replace(new.roster, members=(passed, *new.roster.members[1:]))
    assert find_holder(certificate(one), expired) is None
    same_version = replace(new.roster, members=one.roster.members)
    assert find_holder(certificate(new), same_version) is None
    assert find_holder(certificate(new), replace(one.roster, federation="other")) is None
    nameless = with_certificate(tmp_path, one, certificate_authority.ec.generate_private_key(CURVE))
    assert find_holder(certificate(nameless), one.roster) is None


CURVE = certificate_authority.ec.SECP256R1()


def test_a_refusal_of_new_files_is_logged_once(tmp_path, monkeypatch):
    """Its reason names the round, which changes at each look."""
    found(tmp_path, {0, 1, 2})
    place, lines, rounds = tmp_path / "site0", [], iter(range(1000))
    credentials = Credentials(load_bundle(place))

    def refuse(bundle, signed):
        raise BadBundle(f"this site is in round {next(rounds)}")

    monkeypatch.setattr(credentials, "renew", refuse)

    async def watch():
        task = asyncio.ensure_future(credentials.watch(place, Audit(lines.append), 0.005))
        for wanted in (1, 2):
            await asyncio.sleep(0.01)
            certificate_authority.renew_keys(tmp_path)
            while next(rounds) < 10 * wanted:
                await asyncio.sleep(0.01)
            assert len(lines) == wanted and "new files are not used" in lines[-1]
        task.cancel()

    asyncio.run(watch())
