"""Quasi-Newton steps among processes over TLS that die by kill -9, and what commands say of it."""

import json
import random
import time

import pytest
from federations import FEDERATION, NAMES, command, start_site, trial  # noqa: F401

pytestmark = pytest.mark.slow
COMMON = """
import jax.numpy as jnp
import numpy as np
import diamond


def f(x, y, rows):
    return jnp.mean(jnp.log(jnp.cosh(y - rows))) + 0.1 * x @ x


def g(x, y, rows):
    return jnp.mean(jnp.sum(jnp.logaddexp(0, y * rows) + jnp.exp(x) * y**2, axis=-1))


def make(data: str):
    rows = np.load(data)
    start = lambda key: (jnp.zeros(3, rows.dtype), jnp.zeros(3, rows.dtype))
    return diamond.Problem(f, g, start, [rows], [rows[::-1].copy()], lower_level="common")
"""
SOLVE = FEDERATION.replace("rounds = 60", "rounds = 2000").replace("every = 10", "every = 3")
SOLVE = SOLVE.split("[algorithm]")[0] + '[algorithm]\nname = "solve"\nbatch = 4\n[sites]\n'


@pytest.fixture
def solving(monkeypatch):
    """Federations of `trial` solve a problem with a common lower level."""
    monkeypatch.setattr("federations.PROBLEM", COMMON)
    monkeypatch.setattr("federations.FEDERATION", SOLVE)


def finish(processes):
    ends = [json.loads(process.communicate(timeout=240)[0]) for process in processes.values()]
    assert len({(end["round"], end["x"]) for end in ends}) == 1
    return ends[0]["round"], ends[0]["x"]


def test_ten_kills_at_random_moments_end_in_the_same_bits(solving, trial, command):  # noqa: F811
    wanted = finish({name: start_site(trial, name) for name in NAMES})
    assert 30 < wanted[0] < 2000
    folder = next((trial / "runs").glob("*"))
    words = trial / "trial" / "west", "--out", trial / "runs", "--json"
    assert "converged: the gradient is" in command("status", *words).stdout
    folder.rename(trial / "calm")
    for record in trial.glob("trial/*/sent.record"):
        record.unlink()
    chance = random.Random(0)
    processes = {name: start_site(trial, name) for name in NAMES}
    for kill in range(10):
        victim = chance.choice(NAMES)
        saved = trial / "runs" / folder.name / victim / "checkpoint"
        target, deadline = (kill + chance.random()) * wanted[0] / 11, time.monotonic() + 120
        while max((int(p.stem) for p in saved.glob("*.json")), default=0) < target - 3:
            assert time.monotonic() < deadline
            time.sleep(0.005)
        time.sleep(0.05 * chance.random())
        processes[victim].kill()
        processes[victim].communicate()
        processes[victim] = start_site(trial, victim)
    assert finish(processes) == wanted
