"""Real processes, one slow: the others do not wait for it, and journals repeat the run.

`benchmarks/stragglers.py` has the same with eight sites.
"""

import json

import jax
import numpy as np
import pytest
from slow_sites import SLOW, read_versions, replay_sites, run_sites, simulate

pytestmark = pytest.mark.slow


@pytest.mark.filterwarnings("ignore:mini-batch Hessians g_yy have eigenvalues")
def test_a_slow_site_takes_part_and_delays_nobody(tmp_path):
    sites, fixed, work = 4, (60, 5, "paper"), 0.3
    seconds = [work * (10 if i == SLOW else 1) for i in range(sites)]
    terms = 'missing = "continue"\ndeadline = "1.5 median"'
    folders, times, x = run_sites(tmp_path / "run", seconds, *fixed, terms)
    run, network = simulate(sites, *fixed, folders)
    np.testing.assert_allclose(run.state.x, x, atol=1e-5)
    waiting = 60 * max(seconds)
    assert max(own[60] for i, own in enumerate(times) if i != SLOW) < waiting / 2
    skipped = [sum(i in phase.skipping for phase in network.phases) for i in range(sites)]
    assert 30 < skipped[SLOW] < 58 and sum(skipped) - skipped[SLOW] < 30
    calm, _ = simulate(sites, *fixed)
    assert abs(run.history["upper_loss"][-1] / calm.history["upper_loss"][-1] - 1) < 0.02


@pytest.mark.filterwarnings("ignore:mini-batch Hessians g_yy have eigenvalues")
def test_asynchronous_sites_one_killed_are_repeated_to_the_bit(tmp_path):
    work, (rounds, every, order) = 0.1, (60, 5, "paper")
    seconds = [work * (10 if i == SLOW else 1) for i in range(4)]
    inputs = seconds, rounds, every, order, 'missing = "asynchronous"'
    folders, times, x = run_sites(tmp_path / "run", *inputs, kill=(1, 20))
    with jax.enable_x64(False):
        sites = replay_sites(4, every, order, read_versions(folders))
    np.testing.assert_array_equal([site.progress.state.x for site in sites], x)
    for folder, site in zip(folders, sites, strict=True):
        lines = (folder / "metrics.jsonl").read_text().splitlines()
        for line, entry in zip(map(json.loads, lines), site.history, strict=True):
            assert {name: line[name] for name in entry} == entry
    ends = [max(own) for own in times]
    assert max(ends) == rounds and ends[SLOW] < rounds / 2
