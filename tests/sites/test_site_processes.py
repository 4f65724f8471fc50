"""Real processes over mutual TLS, disturbed: the run ends in the bits of one that was not.

These are some of the cases; `benchmarks/faults.py` goes through all of them again and again.
"""

import asyncio

import numpy as np
import pytest
from site_faults import NAMES, ROUNDS, VICTIM, Trial, run_trial

from diamond.records import checkpoint_file
from diamond.sites.memory.edge_journal import EdgeJournal
from diamond.sites.transport.messages import DOWN, UP

pytestmark = pytest.mark.slow

CASES = [
    ("kill", "transfer"),
    ("stop", "after"),
    ("old checkpoint", "checkpoint"),
    ("stall", "transfer"),
    ("corrupt", "before"),
]


@pytest.fixture(scope="module")
def calm(tmp_path_factory):
    """A cache of compiled programs, and the digests in which an undisturbed run ends."""
    cache, folder = (tmp_path_factory.mktemp(name) for name in ("cache", "calm"))
    return cache, asyncio.run(run_trial(folder, cache))


@pytest.mark.parametrize(("kind", "phase"), CASES)
def test_a_disturbed_run_ends_in_the_bits_of_a_calm_one(tmp_path, calm, kind, phase):
    cache, wanted = calm
    assert asyncio.run(run_trial(tmp_path, cache, kind, phase)) == wanted


async def without_the_victim(folder, cache):
    """All ends of a run whose victim dies and comes back when the others have finished."""
    async with Trial(folder, cache, {"missing": "continue"}) as trial:
        victim = trial.sites[VICTIM]
        for site in trial.sites.values():
            await site.start(*("finish_exchange", victim.kill) if site is victim else ())
        await victim.paused
        ends = [await site.wait_for_end() for site in trial.sites.values() if site is not victim]
        await victim.start()
        return [*ends, await victim.wait_for_end()], trial


def test_sites_continue_without_a_killed_one_and_it_catches_up(tmp_path, calm):
    ends, trial = asyncio.run(without_the_victim(tmp_path, calm[0]))
    assert [one["round"] for one in ends] == [ROUNDS] * 3
    votes, states = {}, []
    for i, name in enumerate(NAMES):
        site = trial.sites[name]
        saved = checkpoint_file.load(site.folder / "checkpoint", ROUNDS)
        states.append(saved.arrays)
        journal = EdgeJournal([j for j in (i - 1, i + 1) if 0 <= j < 3], saved.notes["run"])
        journal.folder = site.folder / "journal"
        journal.restore(ROUNDS)
        votes |= {(i, j): [own.get(t) for t in range(ROUNDS)] for j, own in journal.votes.items()}
        journal.close()
    assert votes[0, 1] == votes[1, 0] and votes[1, 2] == votes[2, 1]
    assert votes[0, 1][:4] == [UP] * 4 and votes[0, 1][-1] == votes[1, 2][-1] == DOWN
    names = (".state.memory.x", ".state.old.x")  # u and p
    u, p = (sum(one[name].astype(float) for one in states) for name in names)
    np.testing.assert_allclose(u, p, atol=1e-6 * np.abs(p).max())
