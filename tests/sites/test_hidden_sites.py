"""Five real sites of which two accept no connections and share an edge: the bits of `simulate`.

The two listen on loopback for their operator only, at ports that no other site knows.
"""

import hashlib
import json
import os
import re
import subprocess
import sys
import time

import jax
import numpy as np
import pytest
from federations import FEDERATION, PROBLEM
from tls_sites import ports
from typer.testing import CliRunner

import diamond
from diamond import cli
from diamond.config.federation_file import load
from diamond.engine.site_rehearsal import rehearse

pytestmark = pytest.mark.slow

NAMES = ["north", "south", "west", "east", "centre"]
HIDDEN = ["west", "east"]  # neighbours on the ring
LOG_LINE = re.compile(
    r"the relay listens at 127\.0\.0\.1:\d+; it has no keys and reads no messages"
    r"|(west - east|east - west): (joined|closed after [\d.]+ s; \d+ bytes from (west|east), "
    r"\d+ from (west|east))"
    r"|127\.0\.0\.1:\d+: refused: the other end closed the connection"  # the test of the doctor
)


def command(*words):
    return CliRunner().invoke(cli.app, ["net", *map(str, words)])


def start(folder, name, *words):
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", "XDG_CACHE_HOME": str(folder / "cache")}
    with (folder / f"{name}.txt").open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "diamond", "net", *map(str, words)],
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            env=environment,
        )


def found_federation(folder, relay):
    """A federation whose hidden sites have no address; the relay is a process, or north."""
    places = dict(zip(NAMES, (f'"127.0.0.1:{port}"' for port in ports(5))))
    places |= {name: '""' for name in HIDDEN}
    if relay == "north":
        places["north"] = f"{{ address = {places['north']}, relay = true }}"
    text = FEDERATION.replace("ring:3", "ring:5")
    text += "\n".join(f"{name} = {place}" for name, place in places.items())
    if relay == "hub":
        text += f'\n[relays]\nhub = "127.0.0.1:{ports(1)[0]}"'
    (folder / "trial.toml").write_text(text)
    (folder / "mine.py").write_text(PROBLEM)
    for i, name in enumerate(NAMES):
        rows = np.random.default_rng(i).normal(i, 1, (20, 3)).astype(np.float32)
        np.save(folder / f"{name}.npy", rows)
    result = command("init", folder / "trial.toml", "--out", folder / "trial")
    assert result.exit_code == 0, result.output


def digest(x):
    return hashlib.sha256(np.asarray(x).tobytes()).hexdigest()


@pytest.mark.parametrize("relay", ["hub", "north"])
def test_two_hidden_sites_end_in_the_bits_of_simulate(tmp_path, relay):
    found_federation(tmp_path, relay)
    processes = {}
    if relay == "hub":
        processes["hub"] = start(tmp_path, "hub", "relay", tmp_path / "trial" / "hub")
    words = {
        name: [
            *("start", tmp_path / "trial" / name, "--problem", f"{tmp_path / 'mine.py'}:make"),
            *("--data", tmp_path / f"{name}.npy", "--out", tmp_path / "runs", "--json"),
        ]
        for name in NAMES
    }
    try:
        for name in NAMES[:-1]:  # the last one comes later, so that the others wait
            processes[name] = start(tmp_path, name, *words[name])
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline:
            seen = command("status", tmp_path / "trial" / "east", "--all", "--json")
            states = json.loads(seen.stdout)
            if all("state" in states[name] for name in NAMES[:-1]):
                break
            time.sleep(0.5)
        assert "error" in states["centre"] and states["west"]["state"] == "running"
        examined = command("doctor", tmp_path / "trial" / "west").stdout.splitlines()
        dialed = f"west - east: good; east dials through {relay}"
        assert examined[:2] == ["west - south: good; west dials", dialed]
        assert f"relay {relay}: good" in examined and examined[-1].endswith("disk, memory: good")
        processes["centre"] = start(tmp_path, "centre", *words["centre"])
        ends = {name: json.loads(processes[name].communicate(timeout=200)[0]) for name in NAMES}
    finally:
        for process in processes.values():
            process.terminate()
            process.communicate()
    space: dict = {}
    exec(PROBLEM, space)
    federation = load(tmp_path / "trial.toml")
    network, algorithm = federation.build_network(), federation.algorithm.build()
    rows = [np.load(tmp_path / f"{name}.npy") for name in NAMES]
    with jax.enable_x64(False):
        problems = [space["make"](str(tmp_path / f"{name}.npy")) for name in NAMES]
        alone = rehearse(problems, network, algorithm, 60)
        start_point = lambda key: (np.zeros(3, np.float32), np.zeros(3, np.float32))
        together = diamond.Problem(
            space["f"], space["g"], start_point, rows, [part[::-1].copy() for part in rows]
        )
        simulated = diamond.simulate(together, network, algorithm, rounds=60)
    for i, name in enumerate(NAMES):
        assert ends[name]["round"] == 60 and ends[name]["x"] == digest(alone[i].state.x)
        np.testing.assert_array_equal(np.asarray(alone[i].state.x), np.asarray(simulated.last_x)[i])
    if relay == "hub":
        lines = (tmp_path / "hub.txt").read_text().splitlines()
        assert len(lines) >= 3 and all(LOG_LINE.fullmatch(line) for line in lines), lines
