"""A federation of three sites as its users found one, and its sites as processes."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
from tls_sites import ports
from typer.testing import CliRunner

from diamond import cli
from diamond.hardware import compilation_cache

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
    monkeypatch.setattr(compilation_cache, "enable_compile_cache", lambda: None)
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
    result = command("init", tmp_path / "trial.toml", "--out", tmp_path / "trial", "--json")
    assert result.exit_code == 0, result.output
    assert list(json.loads(result.stdout)) == NAMES
    return tmp_path


def start_site(trial, name):
    """The site `name` of the federation in `trial`, as a process."""
    words = ["net", "start", trial / "trial" / name, "--problem", trial / "mine.py"]
    words = [*map(str, words[:-1]), f"{words[-1]}:make", "--data", str(trial / f"{name}.npy")]
    words += ["--out", str(trial / "runs"), "--json", "--connect", "2"]
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", "XDG_CACHE_HOME": str(trial / "cache")}
    command = [sys.executable, "-m", "diamond", *words]
    with (trial / f"{name}.txt").open("ab") as log:
        return subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=log, text=True, env=environment
        )
