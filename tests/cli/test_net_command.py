"""`diamond net`: a federation founded, started, killed and examined as its users would."""

import asyncio
import hashlib
import json
import shutil
import signal
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from federations import FEDERATION, NAMES, PROBLEM, start_site
from tls_sites import ports

from diamond.config.federation_file import load
from diamond.config.validation_errors import BadExperiment
from diamond.engine.site_rehearsal import rehearse
from diamond.sites.identity import roster
from diamond.sites.transport import reachability
from diamond.sites.transport.path_checks import check_paths
from diamond.sites.transport.timeouts import Timeouts
from diamond.sites.transport.worker_thread import run_in_thread


def test_a_bundle_holds_what_its_site_needs_and_no_other_key(trial):
    for name in NAMES:
        place = trial / "trial" / name
        files = {"agent.key", "agent.pem", "ca.pem", "roster.json", "roster.sig"}
        assert {path.name for path in place.iterdir()} == files
        bundle = roster.load_bundle(place)
        assert bundle.me.name == name and bundle.roster.terms["rounds"] == 60
        assert sorted((*bundle.me.neighbours, bundle.me.number)) == [0, 1, 2]


def test_a_federation_is_not_founded_over_another(trial, command):
    found = command("init", trial / "trial.toml", "--out", trial / "trial")
    assert found.exit_code == 2 and "is not empty" in found.stderr


def test_all_mistakes_are_named(tmp_path):
    text = FEDERATION.replace("rounds = 60", "rounds = 0").replace(
        "terms = 3", "terms = 3, lipschitz = -1"
    )
    (tmp_path / "bad.toml").write_text(text + 'north = "nowhere"')
    with pytest.raises(BadExperiment) as error:
        load(tmp_path / "bad.toml")
    assert {mistake.key for mistake in error.value.mistakes} >= {"rounds", "sites.north"}
    (tmp_path / "bad.toml").write_text(FEDERATION + 'north = "127.0.0.1:80"')
    with pytest.raises(BadExperiment) as error:
        load(tmp_path / "bad.toml")
    assert [mistake.key for mistake in error.value.mistakes] == ["sites"]
    text = FEDERATION.replace("alpha = 0.05", "").replace("every", 'missing = "continue"\nevery')
    (tmp_path / "bad.toml").write_text(text + 'a = "h:1"\nb = "h:2"\nc = "h:3"')
    assert load(tmp_path / "bad.toml").missing == "continue"  # and alpha is found by all sites


def test_names_addresses_and_sizes_that_cannot_be_are_named_all_at_once(tmp_path, command):
    text = FEDERATION.replace("rounds = 60", "rounds = 0").replace("ring:3", "complete:200000")
    text = text.replace("every", "deadline = 2.0\nevery")
    (tmp_path / "bad.toml").write_text(
        text + '"ca.key" = "h:1"\nRoster.JSON = "h:2"\nnorth = "h:99999"\nNORTH = "h:0"'
    )
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "file").touch()
    found = command("init", tmp_path / "bad.toml", "--out", tmp_path / "out")
    lines = found.stderr.splitlines()
    assert found.exit_code == 2 and lines[0].endswith("9 mistakes")
    for message in (
        "sites: 4 are listed, the network has 200000 agents",
        "rounds: must be at least 1, not 0",
        "sites: ca.key is a file in the federation's folder; choose another name",
        "sites: north and NORTH are one folder on some machines; rename one",
        "sites: north: h:99999 has no port between 1 and 65535",
        "sites: NORTH: h:0 has no port between 1 and 65535",
        "deadline: complete(4) cannot combine a deadline with missing='wait': a deadline ends "
        'rounds without late sites; set missing = "continue"',
    ):
        assert f"  {message}" in lines, found.stderr
    assert lines[-1].endswith("is not empty; name a new folder")


@pytest.mark.parametrize(
    ("sites", "keys"),
    [
        ('sites = "none"', {"sites"}),
        ('[sites]\n"a b" = "h:1"\nc = "h:70000"\nd = "h:3"', {"sites.a b.[key]", "sites"}),
        ('[sites]\na = "nowhere"\nb = "h:70000"\nd = "h:3"', {"sites.a", "sites"}),
    ],
)
def test_one_invalid_site_hides_no_other_mistake(tmp_path, sites, keys):
    head, algorithm = FEDERATION.replace("[sites]", "").split("[algorithm]")
    first, last = (sites, "") if sites.startswith("sites") else ("", sites)
    (tmp_path / "bad.toml").write_text(f"{head}{first}\n[algorithm]{algorithm}\n{last}")
    with pytest.raises(BadExperiment) as error:
        load(tmp_path / "bad.toml")
    assert {mistake.key for mistake in error.value.mistakes} == keys


def test_all_files_of_a_federation_are_reserved(trial):
    files = {path.name for path in (trial / "trial").iterdir() if path.is_file()}
    assert files <= {*reachability.FILES} and roster.ACCEPTED in reachability.FILES


def test_the_doctor_names_the_edge_that_fails_and_why(trial, command):
    found = command("doctor", trial / "trial" / "north", "--connect", "0.5")
    assert found.exit_code == 1
    assert [line.split(": ")[0] for line in found.stdout.splitlines()] == [
        "north - south",
        "north - west",
        "port, disk, memory",
    ]
    assert found.stdout.count("nothing listens there") == 2


def test_a_site_may_have_no_address_and_a_relay_is_named_where_one_is_needed(tmp_path, command):
    path, a, b = tmp_path / "trial.toml", 'a = {address = "h:1", relay = true}\n', 'b = "h:2"\n'
    path.write_text(FEDERATION + a + b + 'c = ""')
    federation = load(path)
    assert federation.sites == {"a": "h:1", "b": "h:2", "c": ""} and federation.relays == {
        "a": "h:1"
    }
    (tmp_path / "again.toml").write_text(federation.to_toml())
    assert load(tmp_path / "again.toml") == federation
    hidden = 'a = "h:1"\nb = ""\nc = {}\n'
    path.write_text(FEDERATION + hidden)
    with pytest.raises(BadExperiment, match="b - c: neither end accepts connections; give one end"):
        load(path)
    path.write_text(FEDERATION + hidden + '[relays]\nhub = "h:9"')
    assert command("init", path, "--out", tmp_path / "trial").exit_code == 0
    bundle = roster.load_bundle(tmp_path / "trial" / "b")
    assert bundle.roster.all_relays == {"hub": "h:9"} and bundle.me.address == ""
    path.write_text(FEDERATION + a.replace("h:1", "") + b + 'c = "h:3"')
    with pytest.raises(BadExperiment) as error:
        load(path)
    assert {mistake.key for mistake in error.value.mistakes} == {"relays.a"}


def test_the_doctor_says_who_dials_and_waits_for_those_who_do(tmp_path, command):
    """Two doctors at the same time, at the two ends of an edge of which one cannot be dialed."""
    places = f'a = "127.0.0.1:{ports(1)[0]}"\nb = ""\nc = "127.0.0.1:{ports(1)[0]}"'
    (tmp_path / "trial.toml").write_text(FEDERATION + places)
    assert command("init", tmp_path / "trial.toml", "--out", tmp_path / "trial").exit_code == 0
    first, second = (roster.load_bundle(tmp_path / "trial" / name) for name in "ab")

    async def both():
        listening = check_paths(first, {}, Timeouts(2.0, 2.0), first.me.address)
        waiting = asyncio.ensure_future(listening)
        await asyncio.sleep(0.3)
        dialing = await check_paths(second, {}, Timeouts(1.0, 1.0), "")
        return await waiting, dialing

    at_first, at_second = asyncio.run(both())
    assert at_first.edges["b"] == at_second.edges["a"] == "good"
    assert "nothing listens there" in at_first.edges["c"]
    assert "nothing listens there" in at_second.edges["c"]
    lines = command("doctor", tmp_path / "trial" / "a", "--connect", "0.3").stdout.splitlines()
    assert lines[0] == "a - b: b dials, and has not connected yet; b dials"
    assert lines[1].startswith("a - c: ") and lines[1].endswith("; both dial")


def test_a_command_leaves_the_precision_as_it_was(trial, command):
    for wide in (False, True):
        with jax.enable_x64(wide):
            command("doctor", trial / "trial" / "north", "--connect", "0.1")
            assert jnp.zeros(()).dtype == ("float64" if wide else "float32")


@pytest.mark.parametrize("wide", [False, True])
def test_a_thread_works_in_the_precision_of_its_caller(wide):
    with jax.enable_x64(wide):
        found = asyncio.run(run_in_thread(lambda n: jnp.zeros(n).dtype, 3))
    assert found == ("float64" if wide else "float32")


def test_a_bundle_that_is_none_is_refused_plainly(tmp_path, command):
    found = command("start", tmp_path, "--problem", "mine.py:make")
    assert found.exit_code == 2 and "no whole bundle" in found.stderr


def test_the_doctor_says_whether_messages_are_masked(trial, command):
    plain = command("doctor", trial / "trial" / "north", "--connect", "0.1").stderr
    assert "messages are not masked, and each neighbour sees them" in plain.replace("\n", " ")
    found_masked(trial, command)
    masked = command("doctor", trial / "trial" / "north", "--connect", "0.1").stderr
    assert "each site sees only the sum over its 2 or more neighbours" in masked.replace("\n", " ")


def found_masked(trial, command):
    """Found the federation again, with masked sums."""
    shutil.rmtree(trial / "trial")
    file = trial / "trial.toml"
    file.write_text("masked = true\n" + file.read_text())
    assert command("init", file, "--out", trial / "trial").exit_code == 0


@pytest.mark.slow
@pytest.mark.parametrize("is_masked", [False, True])
def test_real_processes_one_killed_again_and_again_end_in_the_bits_of_the_rehearsal(
    trial, command, is_masked
):
    if is_masked:
        found_masked(trial, command)
    alive = {name: start_site(trial, name) for name in NAMES}
    place = trial / "runs" / "trial" / "south" / "checkpoint"
    try:
        for round in (10, 30, 50):
            while not any(int(path.stem) >= round for path in place.glob("*.json")):
                assert alive["south"].poll() is None, (trial / "south.txt").read_text()
                time.sleep(0.01)
            alive["south"].send_signal(signal.SIGKILL)
            alive["south"].communicate()
            alive["south"] = start_site(trial, "south")
        results = {
            name: json.loads(process.communicate(timeout=120)[0]) for name, process in alive.items()
        }
    finally:
        for process in alive.values():
            process.kill()
    wanted = rehearsed(trial)
    for name, progress in zip(NAMES, wanted, strict=True):
        x = hashlib.sha256(np.asarray(progress.state.x).tobytes()).hexdigest()
        assert results[name]["round"] == 60 and results[name]["x"] == x


def rehearsed(trial):
    space: dict = {}
    exec(PROBLEM, space)
    federation = load(trial / "trial.toml")
    with jax.enable_x64(False):
        problems = [space["make"](str(trial / f"{name}.npy")) for name in NAMES]
        return rehearse(problems, federation.build_network(), federation.algorithm.build(), 60)
