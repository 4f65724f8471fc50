"""Domain weights of a language model among three sites as processes, one of which is killed."""

import asyncio

import jax
import numpy as np
import pytest
from site_faults import NAMES, ROUNDS, TERMS, VICTIM, Trial

import diamond
from diamond.records import checkpoint_file

pytestmark = pytest.mark.slow

SIZES = {"width": 8, "layers": 1, "heads": 2, "length": 8, "vocabulary": 8, "rows": 24}
PROBLEM = f"""
from pathlib import Path

import diamond

NAMES = {NAMES}


def make(data: str):
    whole = diamond.gallery.domain_weights(agents=3, **{SIZES})
    number = NAMES.index(Path(data).stem)
    rows = [[whole.rows[part][number]] for part in ("train", "valid")]
    losses = whole.upper, whole.lower, whole.init  # whose rows are shuffled already
    return diamond.Problem(*losses, *rows, convex=False, shuffle=False)
"""
ALGORITHM = {"name": "f2sa_fused", "alpha": 0.05, "beta": 0.05, "delta": 0.05, "batch": 8}


async def run_sites(folder):
    """Return x, y and z of all sites at the end; the victim is killed after a round and returns."""
    terms = {"algorithm": ALGORITHM}
    async with Trial(folder, folder / "cache", terms, patience=3, problem=PROBLEM) as trial:

        async def kill():
            await trial.inject("kill")

        for name, site in trial.sites.items():
            await site.start(*("finish_exchange", kill) if name == VICTIM else ())
        await trial.sites[VICTIM].paused
        await trial.undoing
        assert trial.deaths == 1
        ends = [await site.wait_for_end() for site in trial.sites.values()]
    assert [end["round"] for end in ends] == [ROUNDS] * 3
    states = [
        checkpoint_file.load(site.folder / "checkpoint", ROUNDS).arrays
        for site in trial.sites.values()
    ]
    names = [n for n in states[0] if n.startswith((".state.x", ".state.y", ".state.z"))]
    return {name: np.stack([state[name] for state in states]) for name in names}


def test_three_sites_end_in_the_bits_of_the_simulation_though_one_is_killed(tmp_path):
    with jax.enable_x64(False):
        problem = diamond.gallery.domain_weights(agents=3, **SIZES)
        assert not problem.has_lower_solution
        options = {name: ALGORITHM[name] for name in ALGORITHM if name != "name"}
        method = diamond.f2sa_fused(**options)
        run = diamond.simulate(problem, diamond.network.path(3), method, ROUNDS, seed=TERMS["seed"])
        simulated = run.snapshot.arrays
        start = problem.start(TERMS["seed"])[0]
    states = asyncio.run(run_sites(tmp_path))
    assert len(states) > 10
    for name, value in states.items():
        np.testing.assert_array_equal(value, np.asarray(simulated[name]))
    assert np.abs(states[".state.x"] - np.asarray(start)).max() > 1e-4
