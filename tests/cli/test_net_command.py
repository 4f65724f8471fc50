"""`diamond net`: a federation founded, started, killed and examined as its users would."""

import asyncio
import hashlib
import json
import os
import signal
import subprocess
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from test_peers_rpc import ports
from typer.testing import CliRunner

from diamond import cli
from diamond.experiment.federation import load
from diamond.experiment.validation_errors import BadExperiment
from diamond.machine import compilation_cache
from diamond.peers import roster
from diamond.peers.worker_thread import threaded
from diamond.runtimes.peers import rehearse

PROBLEM = """
import jax.numpy as jnp
import numpy as np
import diamond


def f(x, y, rows):
    return jnp.mean((y - rows) ** 2) + 0.1 * x @ x


def g(x, y, rows):
    return jnp.mean(0.5 * (y - rows) ** 2 * (1 + 0.1 * jnp.tanh(x))) + 0.1 * y @ x


def make(data: str):
    rows = np.load(data)
    start = lambda key: (jnp.zeros(3, rows.dtype), jnp.zeros(3, rows.dtype))
    return diamond.Problem(f, g, start, [rows], [rows[::-1].copy()])
"""
FEDERATION = """
rounds = 60
every = 10
network = "ring:3"
[algorithm]
name = "gt_sgd"
alpha = 0.05
beta = 0.2
batch = 4
hypergradient = {name = "neumann", terms = 3}
[sites]
"""
NAMES = ["north", "south", "west"]


@pytest.fixture
def command(monkeypatch):
    """Runs a command of `diamond net`."""
    monkeypatch.setattr(compilation_cache, "compile_cache", lambda: None)
    return lambda *words: CliRunner().invoke(cli.app, ["net", *map(str, words)])


@pytest.fixture
def trial(tmp_path, command):
    """A founded federation of three sites, a problem, and rows for each."""
    sites = [f'{name} = "127.0.0.1:{port}"' for name, port in zip(NAMES, ports(3))]
    (tmp_path / "trial.toml").write_text(FEDERATION + "\n".join(sites))
    (tmp_path / "mine.py").write_text(PROBLEM)
    for i, name in enumerate(NAMES):
        rows = np.random.default_rng(i).normal(i, 1, (20 + i, 3)).astype(np.float32)
        np.save(tmp_path / f"{name}.npy", rows)
    found = command("init", tmp_path / "trial.toml", "--out", tmp_path / "trial", "--json")
    assert found.exit_code == 0, found.output
    assert list(json.loads(found.stdout)) == NAMES
    return tmp_path


def test_a_bundle_holds_what_its_site_needs_and_no_other_key(trial):
    for name in NAMES:
        place = trial / "trial" / name
        files = {"agent.key", "agent.pem", "ca.pem", "roster.json", "roster.sig"}
        assert {path.name for path in place.iterdir()} == files
        bundle = roster.load(place)
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
    with pytest.raises(BadExperiment) as said:
        load(tmp_path / "bad.toml")
    assert {mistake.key for mistake in said.value.mistakes} >= {"rounds", "sites.north"}
    (tmp_path / "bad.toml").write_text(FEDERATION + 'north = "127.0.0.1:80"')
    with pytest.raises(BadExperiment) as said:
        load(tmp_path / "bad.toml")
    assert [mistake.key for mistake in said.value.mistakes] == ["sites"]
    text = FEDERATION.replace("alpha = 0.05", "").replace("every", 'missing = "continue"\nevery')
    (tmp_path / "bad.toml").write_text(text + 'a = "h:1"\nb = "h:2"\nc = "h:3"')
    with pytest.raises(
        BadExperiment, match="give alpha, lipschitz: they are found by all sites together"
    ):
        load(tmp_path / "bad.toml")


def test_the_doctor_names_the_edge_that_fails_and_why(trial, command):
    found = command("doctor", trial / "trial" / "north", "--connect", "0.5")
    assert found.exit_code == 1
    assert [line.split(": ")[0] for line in found.stdout.splitlines()] == [
        "north - south",
        "north - west",
    ]
    assert found.stdout.count("nothing listens there") == 2


def test_a_command_leaves_the_precision_as_it_was(trial, command):
    for wide in (False, True):
        with jax.enable_x64(wide):
            command("doctor", trial / "trial" / "north", "--connect", "0.1")
            assert jnp.zeros(()).dtype == ("float64" if wide else "float32")


@pytest.mark.parametrize("wide", [False, True])
def test_a_thread_works_in_the_precision_of_its_caller(wide):
    with jax.enable_x64(wide):
        found = asyncio.run(threaded(lambda n: jnp.zeros(n).dtype, 3))
    assert found == ("float64" if wide else "float32")


def test_a_bundle_that_is_none_is_refused_plainly(tmp_path, command):
    found = command("start", tmp_path, "--problem", "mine.py:make")
    assert found.exit_code == 2 and "no whole bundle" in found.stderr


def started(trial, name):
    words = ["net", "start", trial / "trial" / name, "--problem", trial / "mine.py"]
    words = [*map(str, words[:-1]), f"{words[-1]}:make", "--data", str(trial / f"{name}.npy")]
    words += ["--out", str(trial / "runs"), "--json", "--connect", "2"]
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", "XDG_CACHE_HOME": str(trial / "cache")}
    command = [sys.executable, "-m", "diamond", *words]
    with (trial / f"{name}.txt").open("ab") as log:
        return subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=log, text=True, env=environment
        )


@pytest.mark.slow
def test_real_processes_one_killed_again_and_again_end_in_the_bits_of_the_rehearsal(trial):
    alive = {name: started(trial, name) for name in NAMES}
    place = trial / "runs" / "trial" / "south" / "checkpoint"
    try:
        for round in (10, 30, 50):
            while not any(int(path.stem) >= round for path in place.glob("*.json")):
                assert alive["south"].poll() is None, (trial / "south.txt").read_text()
                time.sleep(0.01)
            alive["south"].send_signal(signal.SIGKILL)
            alive["south"].communicate()
            alive["south"] = started(trial, "south")
        told = {
            name: json.loads(process.communicate(timeout=120)[0]) for name, process in alive.items()
        }
    finally:
        for process in alive.values():
            process.kill()
    wanted = rehearsed(trial)
    for name, progress in zip(NAMES, wanted, strict=True):
        x = hashlib.sha256(np.asarray(progress.state.x).tobytes()).hexdigest()
        assert told[name]["round"] == 60 and told[name]["x"] == x


def rehearsed(trial):
    space: dict = {}
    exec(PROBLEM, space)
    federation = load(trial / "trial.toml")
    with jax.enable_x64(False):
        problems = [space["make"](str(trial / f"{name}.npy")) for name in NAMES]
        return rehearse(problems, federation.graph(), federation.algorithm.build(), 60)
