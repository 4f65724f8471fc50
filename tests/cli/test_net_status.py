"""`net status`, `net stop` and `net renew`: what running sites say, how they end, and new keys."""

import asyncio
import json
import time
from dataclasses import replace

import pytest
from crash_cluster import ROUNDS, team
from federations import NAMES, start_site
from helpers import same_bits
from lockstep_agents import run_lockstep
from tls_sites import SHORT_TIMEOUTS, federation, largest_layout, refusal, running_site

from diamond.cli.net_status_commands import _format_answer
from diamond.records.folder_recovery import REQUIRED_KEYS
from diamond.sites.identity import certificate_authority, roster
from diamond.sites.rounds.shutdown import Halted
from diamond.sites.transport.errors import Refused, Unreachable
from diamond.sites.transport.messages import MessageRequest, StatusQuery, StopRequest
from diamond.sites.transport.operator_queries import query_members
from diamond.sites.transport.rpc import RpcClient
from diamond.sites.transport.wire_format import max_frame_bytes, pack


@pytest.fixture
def bundles(tmp_path):
    return federation(tmp_path / "federation")


def test_a_site_and_its_neighbours_say_where_they_stand_and_for_whom_they_wait(bundles):
    one, two, _ = bundles

    async def asked():
        async with running_site(one), running_site(two) as node:
            running = asyncio.ensure_future(node.run())
            await asyncio.sleep(0.6)
            found = await query_members(
                one, StatusQuery, [one.me, *one.neighbours], 2.0, own_address=None
            )
            running.cancel()
            await asyncio.wait([running])
            return found

    found = asyncio.run(asked())
    assert _format_answer(one, found["site0"]) == f"running, round 0 of {ROUNDS}"
    state, wait = _format_answer(one, found["site1"]).split("; ")
    assert state == f"running, round 0 of {ROUNDS}"
    assert wait.startswith("has waited for site2 for 0.") and "(nothing listens there)" in wait


def test_where_nobody_listens_that_is_said(bundles):
    one = bundles[0]
    found = asyncio.run(query_members(one, StatusQuery, [one.me], 1.0, own_address=None))
    assert found["site0"]["error"] == f"{one.me.address}: nothing listens there"


def test_only_the_site_itself_may_stop_it(bundles):
    one, two, _ = bundles
    stop = pack({"kind": "stop", "sender": 0})
    kind, _ = refusal(two, one, stop)
    assert kind is Unreachable  # no request that a neighbour can make
    assert refusal(two, two, MessageRequest("any", 1, 0, 0).encode())[0] is Refused


def test_a_stopped_site_has_a_checkpoint_and_goes_on_from_it(bundles, tmp_path):
    async def stopped(node):
        while node.t < 3:
            await asyncio.sleep(0.005)
        bundle = bundles[node.agent.number]
        return await query_members(bundle, StopRequest, [bundle.me], 2.0, own_address=None)

    def three(made):
        """Rounds, of which the fourth does not end: it is there that the site is stopped."""

        async def round(progress):
            if progress.t == 3:
                await asyncio.Event().wait()
            return await made(progress)

        return round

    async def live(bundle):
        place = tmp_path / bundle.me.name
        if bundle.me.number == 1:
            async with running_site(bundle, place) as node:
                node._run_round = three(node._run_round)
                stopping = asyncio.ensure_future(stopped(node))
                with pytest.raises(Halted, match=rf"stopped after round \d of {ROUNDS}, as asked"):
                    await node.run()
                answer = (await stopping)["site1"]
                checkpoint_round = max(int(path.stem) for path in place.glob("checkpoint/*.json"))
                assert answer["state"] == "stopping" and checkpoint_round in (
                    answer["round"],
                    answer["round"] + 1,
                )
        async with running_site(bundle, place) as node:
            return await node.run()

    async def everyone():
        return await asyncio.gather(*map(live, bundles))

    found = asyncio.run(everyone())
    assert all(same_bits(a, b) for a, b in zip(found, run_lockstep(team(), ROUNDS), strict=True))


@pytest.mark.wide
def test_a_site_that_waits_is_stopped_too(bundles, tmp_path):
    async def alone():
        async with running_site(bundles[0], tmp_path / "run") as node:
            asyncio.get_running_loop().call_later(0.2, node.shutdown.request)
            await node.run()

    begun = time.monotonic()
    with pytest.raises(Halted, match="stopped after round 0"):
        asyncio.run(alone())
    assert time.monotonic() - begun < SHORT_TIMEOUTS.give_up / 6


def test_renewed_keys_are_taken_and_old_ones_refused(bundles, tmp_path):
    old, two = bundles[0], bundles[1]
    folder = tmp_path / "federation"
    assert list(certificate_authority.renew_keys(folder, "site0")) == ["site0"]
    new, other = (roster.load_bundle(folder / name) for name in ("site0", "site1"))
    assert new.roster.version == other.roster.version == 2
    assert other.me == two.me and other.key == two.key and new.key != old.key
    kind, message = refusal(other, old)
    assert kind is Refused and message.endswith("roster 1 is superseded, take the new bundle")

    async def good(bundle):
        async with (
            running_site(bundle),
            RpcClient(new, max_frame_bytes(largest_layout()), SHORT_TIMEOUTS) as client,
        ):
            await client.send_request(1, pack({"kind": "ping", "sender": 0}))

    asyncio.run(good(other))
    asyncio.run(good(two))  # with the old roster: the certificate names site0 and roster 2


def test_all_keys_are_renewed_and_can_be_read_by_their_owner_only(bundles, tmp_path):
    made = certificate_authority.renew_keys(tmp_path / "federation", days=30)
    assert list(made) == ["site0", "site1", "site2"]
    for before, place in zip(bundles, made.values()):
        after = roster.load_bundle(place)
        assert after.me.fingerprint != before.me.fingerprint and after.ca == before.ca
        assert replace(after.me, fingerprint="") == replace(before.me, fingerprint="")
        assert (place / "agent.key").stat().st_mode & 0o777 == 0o600
        assert {path.name for path in place.iterdir()} == {
            *("agent.key", "agent.pem", "ca.pem", "roster.json", "roster.sig")
        }


def test_the_command_renews_and_says_what_to_carry(trial, command):
    found = command("renew", trial / "trial", "--site", "south")
    assert found.exit_code == 0 and found.stdout == f"south: {trial / 'trial' / 'south'}\n"
    assert "roster version 2; copy each folder" in found.stderr
    assert "north, west: roster.json and roster.sig of their folders are enough" in found.stderr
    renewed = json.loads(command("renew", trial / "trial", "--json").stdout)
    assert renewed["version"] == 3 and list(renewed["bundles"]) == NAMES
    found = command("renew", trial / "trial", "--site", "east")
    assert found.exit_code == 2 and "has no site 'east'; did you mean west?" in found.stderr
    found = command("renew", trial)
    assert found.exit_code == 2 and "in the folder that `net init` made" in found.stderr


def test_the_commands_say_that_nobody_listens(trial, command):
    place = trial / "trial" / "north"
    found = command("status", place, "--connect", "0.5", "--json")
    assert found.exit_code == 1 and list(json.loads(found.stdout)) == NAMES
    found = command("stop", place, "--connect", "0.5")
    assert found.exit_code == 1 and "nothing listens there" in found.stderr


def test_a_run_that_has_ended_is_described_from_its_folder(trial, command):
    folder = trial / "runs" / "trial" / "north"
    folder.mkdir(parents=True)
    manifest = dict.fromkeys(REQUIRED_KEYS, "") | {"status": "finished", "rounds": 60}
    (folder / "manifest.json").write_text(json.dumps(manifest | {"message": ""}))
    (folder / "metrics.jsonl").write_text('{"round": 60, "local_loss": 0.125, "agents": {}}\n')
    words = "status", trial / "trial" / "north", "--connect", "0.5", "--out", trial / "runs"
    found = command(*words)
    line = found.stdout.splitlines()[0]
    assert found.exit_code == 0
    assert line.startswith(
        "north: the run has ended here: finished, round 60 of 60; local loss 0.1"
    )
    assert f"diamond show {folder}" in line
    assert json.loads(command(*words, "--json").stdout)["north"]["state"] == "finished"
    assert "finished" in command(*words, "--all").stdout


@pytest.mark.slow
def test_real_sites_are_watched_stopped_and_gone_on_with(trial, command):
    alive = {name: start_site(trial, name) for name in NAMES[:2]}
    place = trial / "trial" / "north"
    try:
        while "waited for west" not in command("status", place).stdout.partition("\n")[0]:
            time.sleep(0.1)
        found = command("stop", place)
        assert found.exit_code == 0 and "command again to continue" in found.stderr
        alive["north"].communicate(timeout=30)
        assert alive["north"].returncode == 130
        assert "as asked; run the same command again" in (trial / "north.txt").read_text()
        alive |= {name: start_site(trial, name) for name in ("north", "west")}
        results = [json.loads(alive[name].communicate(timeout=120)[0]) for name in NAMES]
        assert [one["round"] for one in results] == [60] * 3
    finally:
        for process in alive.values():
            process.kill()
