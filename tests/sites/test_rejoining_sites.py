"""A site that lost its run folder, or has other rows, rejoins under its name as a new member."""

import asyncio
import json
import shutil
import signal
import time
from pathlib import Path

import jax
import numpy as np
import pytest
from changing_cluster import EVERY, ROUNDS, simulate
from federations import PROBLEM, command, start_site, trial
from lockstep_agents import build_algorithm
from test_roster_acceptance import NAMES, PLACES, FederatedCluster, table

import diamond
from diamond.config.federation_file import load
from diamond.network import changing, ring
from diamond.records import checkpoint_file
from diamond.sites.identity.certificate_authority import (
    create_federation,
    renew_keys,
)
from diamond.sites.identity.certificate_holder import find_holder, read_claim
from diamond.sites.identity.private_keys import BadBundle, create_request, read_request
from diamond.sites.identity.roster import load_bundle, load_roster, load_signed_roster
from diamond.sites.identity.roster_changes import change_members
from diamond.sites.transport.in_process_transport import run_simulated
from diamond.sites.transport.relay_handshake import encode_hello, verify_hello

__all__ = ["command", "trial"]
FIRST = {name: PLACES[name] for name in NAMES[:4]}
AGAIN = {name: PLACES[name] for name in ("north", "west", "east", "south")}  # south rejoins
CPU = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
FOUNDERS = ["north", "south", "west"]  # of the fixture, as processes
LOST, RETURN = 8, 6  # south is lost in round 8; all others return to their checkpoint of round 6


@pytest.fixture
def authority(tmp_path):
    terms = {"rounds": ROUNDS, "every": EVERY, "network": table(4)}
    create_federation(tmp_path / "again", "trial", FIRST, ring(4), terms)
    return tmp_path / "again"


def rejoin(authority, from_round=RETURN, **options):
    return change_members(
        authority, AGAIN, ring(4), table(4), from_round, rejoining=["south"], **options
    )


def test_a_lost_site_rejoins_under_its_name_and_the_run_is_that_of_a_simulation(
    tmp_path, authority
):
    members = {0: [0, 1, 2, 3], RETURN: [0, 2, 3, 4]}
    cluster = FederatedCluster(tmp_path, build_algorithm("gt_sgd"), kills=[(1, LOST)])
    cluster.network = changing({0: ring(4), RETURN: ring(4)}, members=members)
    for i, name in enumerate(NAMES[:4]):
        shutil.rmtree(cluster.bundle(i))
        shutil.copytree(authority / name, cluster.bundle(i))
    bundles = rejoin(authority, rewinds=True)
    assert list(bundles) == ["south"]
    shutil.rmtree(cluster.bundle(4))
    shutil.copytree(bundles["south"], cluster.bundle(4))
    assert load_bundle(cluster.bundle(4)).me.number == 4
    signed, _ = load_signed_roster(authority)
    run_lives = cluster.run_lives

    async def live(number):
        if number == 1:
            task = asyncio.ensure_future(run_lives(1))
            while not cluster.deaths or 1 in cluster.wire.nodes:
                await asyncio.sleep(0.1)
            task.cancel()
            return None
        return await run_lives(number)

    async def everyone():
        lives = [asyncio.ensure_future(live(number)) for number in range(4)]
        await asyncio.sleep(60)
        assert not any(task.done() for task in lives if task is not lives[1])  # all wait
        cluster.deliver(2, signed)
        shutil.copytree(tmp_path / "1", tmp_path / "4")  # of another machine, and of no use
        return await asyncio.gather(*lives, live(4))

    found = run_simulated(everyone())
    run = simulate(cluster)
    for i in members[RETURN]:
        assert found[i].t == ROUNDS
        np.testing.assert_array_equal(found[i].state.x, np.asarray(run.last_x)[i])


def test_a_rejoining_site_is_another_member_with_another_key(authority, tmp_path):
    before = load_bundle(authority / "south")
    rejoin(authority)
    bundle = load_bundle(authority / "south")
    roster = load_roster(authority)
    assert (before.me.number, bundle.me.number) == (1, 4)
    assert roster.by_name("south") == bundle.me and roster.is_superseded(roster.members[1])
    assert bundle.me.fingerprint != before.me.fingerprint
    north = load_bundle(authority / "north")
    assert [m.number for m in north.neighbours] == [2, 3, 4]  # not the former south
    # A site with the earlier roster takes the certificate for nobody's, not for the former member.
    assert read_claim(bundle.x509_certificate) == ("trial", "south", 2, 4)
    assert find_holder(bundle.x509_certificate, before.roster) is None
    assert find_holder(before.x509_certificate, roster).number == 1
    pairs = [
        verify_hello(encode_hello(one, other, b"1" * 32), b"1" * 32, before.ca, roster)
        for one, other in ((before, "north"), (bundle, "north"), (north, "south"))
    ]
    assert [(p.site.number, p.other.number) for p in pairs] == [(4, 0), (4, 0), (0, 4)]
    renewed = renew_keys(authority, "south")
    assert list(renewed) == ["south"] and load_bundle(renewed["south"]).me.number == 4
    certificate = load_bundle(renewed["south"]).x509_certificate
    assert find_holder(certificate, roster).number == 4  # before the newest roster is there
    assert load_roster(authority).members[1] == roster.members[1]


def test_a_site_that_has_left_comes_back_under_its_name(authority, tmp_path):
    without = {name: place for name, place in FIRST.items() if name != "south"}
    change_members(authority, without, ring(3), table(3), 4)
    change_members(authority, AGAIN, ring(4), table(4), 9)  # nothing else is needed
    roster = load_roster(authority)
    assert [e.members for e in roster.epochs] == [(0, 1, 2, 3), (0, 2, 3), (0, 2, 3, 4)]
    assert load_bundle(authority / "south").me.number == 4


@pytest.mark.parametrize(
    ("name", "reason"), [("north-west", "never was a member"), ("centre", "never was a member")]
)
def test_who_was_no_member_cannot_rejoin(authority, name, reason):
    sites = AGAIN | {"centre": PLACES["centre"]}
    with pytest.raises(ValueError, match=reason):
        change_members(authority, sites, ring(5), table(5), 6, rejoining=[name])


def test_a_former_key_is_not_used_again(authority, tmp_path):
    folder = tmp_path / "own"
    first = read_request(create_request(folder, "south"))
    renew_keys(authority, requests=[first])
    with pytest.raises(BadBundle, match=r"remove request\.key at the site"):
        rejoin(authority, requests=[read_request(create_request(folder, "south"))])
    (folder / "request.key").unlink()
    bundles = rejoin(authority, requests=[read_request(create_request(folder, "south"))])
    assert not (bundles["south"] / "agent.key").exists()


def rounds_of(folder):
    """Rounds of the checkpoints in a run folder."""
    return sorted(int(path.stem) for path in (folder / "checkpoint").glob("*.json"))


def kill_south(trial, command, batch=4):
    """Start three sites for 300 rounds, and kill one by -9 after two checkpoints."""
    file = trial / "trial.toml"
    text = file.read_text().replace("rounds = 60", "rounds = 300")
    file.write_text(text.replace("batch = 4", f"batch = {batch}"))
    shutil.rmtree(trial / "trial")
    assert command("init", file, "--out", trial / "trial").exit_code == 0
    alive = {name: start_site(trial, name) for name in FOUNDERS}
    while len(rounds_of(trial / "runs" / "trial" / "south")) < 2:
        assert alive["south"].poll() is None, (trial / "south.txt").read_text()
        time.sleep(0.01)
    alive["south"].send_signal(signal.SIGKILL)
    alive["south"].communicate()
    return alive


def let_south_rejoin(trial, command):
    """Sign the change while the others wait; return the round to which they return."""
    lines = (trial / "trial.toml").read_text().splitlines()
    (south,) = (line for line in lines if line.startswith("south"))
    lines.remove(south)
    (trial / "trial.toml").write_text("\n".join([*lines, south]))
    time.sleep(3)
    runs = trial / "runs" / "trial"
    first = min(rounds_of(runs / name)[-1] for name in ("north", "west"))
    words = "--from-round", first, "--rewind", "--rejoin", "south"
    changed = command("change", trial / "trial", trial / "trial.toml", *words)
    assert changed.exit_code == 0, changed.output
    return first


def check_ends(trial, alive, first, rows):
    """All sites end where a simulation does whose agent 1 leaves and 3 joins with `rows`."""
    ends = {name: json.loads(alive[name].communicate(timeout=120)[0]) for name in FOUNDERS}
    assert {end["round"] for end in ends.values()} == {300}
    space: dict = {}
    exec(PROBLEM, space)
    start = lambda key: (np.zeros(3, np.float32), np.zeros(3, np.float32))
    problem = diamond.Problem(space["f"], space["g"], start, rows, [r[::-1].copy() for r in rows])
    network = changing({0: ring(3), first: ring(3)}, members={0: [0, 1, 2], first: [0, 2, 3]})
    algorithm = load(trial / "trial.toml").algorithm.build()
    with jax.enable_x64(False):
        run = diamond.simulate(problem, network, algorithm, rounds=300)
    for number, name in {0: "north", 2: "west", 3: "south"}.items():
        place = trial / "runs" / "trial" / name / f"epoch-{first}" / "checkpoint"
        x = checkpoint_file.load_newest(place).arrays[".state.x"]
        np.testing.assert_allclose(x, run.last_x[number], rtol=1e-4)


@pytest.mark.slow
def test_real_sites_continue_after_one_was_lost_and_came_back_with_corrected_rows(trial, command):
    """Killed by -9, its run folder and its bundle gone, its rows corrected: the name stays."""
    alive = kill_south(trial, command)
    try:
        shutil.rmtree(trial / "runs" / "trial" / "south")
        shutil.rmtree(trial / "trial" / "south")
        rows = [np.load(trial / f"{name}.npy") for name in FOUNDERS]
        rows.append(0.5 * rows[1])
        np.save(trial / "south.npy", rows[3])
        first = let_south_rejoin(trial, command)
        alive["south"] = start_site(trial, "south")
        check_ends(trial, alive, first, rows)
    finally:
        for process in alive.values():
            process.kill()


@pytest.mark.slow
@pytest.mark.skipif("avx2" not in CPU, reason="needs a CPU with AVX2, to do without")
def test_a_real_site_on_another_cpu_stops_and_continues_by_the_command_that_it_names(
    trial, command, monkeypatch
):
    """Long sums round differently without AVX: rounds since the checkpoint send other bits."""
    for i, name in enumerate(FOUNDERS):  # programs on few rows use no vectors
        rows = np.random.default_rng(i).normal(i, 1, (30_000, 3)).astype(np.float32)
        np.save(trial / f"{name}.npy", rows)
    monkeypatch.setenv("XLA_FLAGS", "")  # tests compile without optimizations
    alive = kill_south(trial, command, batch=10_000)
    try:
        place = trial / "runs" / "trial" / "south"
        newest = f"{rounds_of(place)[-1]:010d}"
        for path in (place / "checkpoint").glob(f"{newest}*"):
            path.unlink()  # as in a backup
        monkeypatch.setenv("XLA_FLAGS", "--xla_cpu_max_isa=SSE4_2")
        alive["south"] = start_site(trial, "south")
        alive["south"].communicate(timeout=120)
        message = (trial / "south.txt").read_text()
        assert alive["south"].returncode == 2, message
        assert "has sent another message of round" in message and "--rewind --rejoin" in message
        assert alive["north"].poll() is alive["west"].poll() is None  # they wait
        first = let_south_rejoin(trial, command)
        alive["south"] = start_site(trial, "south")
        rows = [np.load(trial / f"{name}.npy") for name in (*FOUNDERS, "south")]
        check_ends(trial, alive, first, rows)
    finally:
        for process in alive.values():
            process.kill()
