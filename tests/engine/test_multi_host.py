"""Several processes as one job: the same bits, a lost one said and gone on without."""

import json
import os
import socket
import subprocess
import sys
import time

import pytest

from diamond.records.folder_writer import Writer

EXPERIMENT = """
name = "small"
rounds = 3000
every = 100
checkpoint_seconds = 0
network = "ring:5"
[problem]
kind = "quadratic"
agents = 5
upper = 3
lower = 3
rows = 12
[algorithm]
name = "gt_sgd"
alpha = 0.02
beta = 0.1
batch = 3
hypergradient = {name = "neumann", terms = 3, lipschitz = 4.0}
"""


def port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def command(folder, *words, devices=1):
    environment_changes = {
        "JAX_NUM_CPU_DEVICES": str(devices),
        "XDG_CACHE_HOME": str(folder / "cache"),
    }
    environment_changes |= {"JAX_PLATFORMS": "cpu", "JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}
    environment = {**os.environ, **environment_changes, "TF_CPP_MIN_LOG_LEVEL": "3"}
    return subprocess.Popen(
        [sys.executable, "-m", "diamond", *map(str, words)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        cwd=folder,
    )


def job(folder, *words, size=2, devices=1):
    """The processes of one job."""
    where = f"127.0.0.1:{port()}"
    process_options = lambda rank: ("--hosts", where, "--rank", rank, "--size", size)
    return [
        command(folder, *words, *process_options(rank), devices=devices) for rank in range(size)
    ]


def ended(process):
    message, complaint = process.communicate(timeout=300)
    assert process.returncode == 0, complaint
    return message


def digest(folder, out):
    return json.loads((folder / out / "small" / "manifest.json").read_text())["digest"]


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "small.toml").write_text(EXPERIMENT)
    return tmp_path


def run(folder, out, *words, rounds=200):
    return ("run", "small.toml", "--set", f"rounds={rounds}", "--out", out, "--quiet", *words)


def test_two_processes_make_the_run_of_one(folder):
    processes = job(folder, *run(folder, "two"))
    assert "digest" in ended(processes[0])
    assert ended(processes[1]) == ""  # only the first one speaks, and writes
    ended(command(folder, *run(folder, "one", "--devices", "2"), devices=2))
    assert digest(folder, "one") == digest(folder, "two")


KEEPING = """
import weakref
from pathlib import Path
import jax, jax.numpy as jnp, numpy as np
import diamond

def make():
    rows = [np.random.default_rng(i).normal(size=(6, 3)).astype("float32") for i in range(10)]
    seen = [weakref.ref(own) for own in rows]

    def loss(x, y, rows):
        return jnp.mean((rows @ y - 1) ** 2) + jnp.mean(jnp.exp(x) * y**2)

    def alive(x, y, rows):  # looked at when the measurement is compiled
        there = " ".join(str(i) for i, own in enumerate(seen) if own() is not None)
        Path(f"alive.{jax.process_index()}").write_text(there)
        return loss(x, y, rows)

    start = lambda key: (jnp.zeros(3), jnp.zeros(3))
    parts = rows[:5], rows[5:]
    return diamond.Problem(loss, loss, start, *parts, metrics={"loss": alive}, shuffle=False)
"""


@pytest.mark.slow
def test_a_process_keeps_the_rows_of_its_own_agents_only(folder):
    (folder / "mine.py").write_text(KEEPING)
    rest = EXPERIMENT[EXPERIMENT.index("[algorithm]") :]
    kind = '[problem]\nkind = "mine.py:make"\n'
    text = EXPERIMENT[: EXPERIMENT.index("[problem]")] + kind + rest
    (folder / "small.toml").write_text(text)
    for process in job(folder, *run(folder, "two", rounds=10)):
        ended(process)
    assert [(folder / f"alive.{rank}").read_text() for rank in (0, 1)] == ["0 1 2 5 6 7", "3 4 8 9"]


@pytest.mark.slow
@pytest.mark.parametrize(("size", "devices"), [(2, 4), (4, 1)])
def test_processes_times_devices(folder, size, devices):
    for process in job(folder, *run(folder, "many"), size=size, devices=devices):
        ended(process)
    ended(command(folder, *run(folder, "one", "--devices", "8"), devices=8))
    single, several = (
        list(map(json.loads, (folder / out / "small" / "metrics.jsonl").read_text().splitlines()))
        for out in ("one", "many")
    )
    assert [line["upper_loss"] for line in several] == pytest.approx(
        [line["upper_loss"] for line in single], rel=1e-6
    )


@pytest.mark.slow
@pytest.mark.parametrize("victim", [0, 1])
def test_a_lost_process_ends_the_job_which_goes_on_elsewhere_in_the_same_bits(folder, victim):
    processes = job(folder, *run(folder, "lost", rounds=100_000))
    checkpoint_folder = folder / "lost" / "small" / "checkpoint"
    while not any(int(path.stem) >= 500 for path in checkpoint_folder.glob("*.json")):
        assert all(process.poll() is None for process in processes)
        time.sleep(0.02)
    processes[victim].kill()
    killed = time.monotonic()
    processes[victim].communicate()
    _, complaint = processes[1 - victim].communicate(timeout=60)
    assert time.monotonic() - killed < 20 and processes[1 - victim].returncode != 0
    assert "another" in complaint and ("lost" in complaint or "died" in complaint)
    text = (folder / "lost" / "small" / "config.toml").read_text()
    with Writer(folder / "lost" / "small") as writer:
        writer.extend_run(text.replace("rounds = 100000", "rounds = 3000"), 3000)
    last_round = max(int(path.stem) for path in checkpoint_folder.glob("*.json"))
    assert last_round < 3000, "killed too late for what follows"
    for process in job(folder, "resume", "lost/small", "--quiet", size=2):
        ended(process)
    ended(command(folder, *run(folder, "one", "--devices", "1", rounds=3000)))
    assert digest(folder, "one") == digest(folder, "lost")


@pytest.mark.wide(
    keep=["words0-need --hosts", "words1-needs --rank and --size", "words2-but JAX has 1"]
)
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--rank", "1"), "need --hosts"),
        (("--hosts", "127.0.0.1:1"), "needs --rank and --size"),
        (("--devices", "9"), "but JAX has 1"),
        (("--devices", "lots"), "devices"),
    ],
)
def test_what_does_not_fit_is_said(folder, words, message):
    process = command(folder, *run(folder, "bad", *words))
    _, complaint = process.communicate(timeout=100)
    assert process.returncode == 2 and message in complaint and "Traceback" not in complaint
