"""Real processes over mutual TLS, disturbed: the run ends in the bits of one that was not.

These are some of the cases; `benchmarks/faults.py` goes through all of them again and again.
"""

import asyncio

import numpy as np
import pytest
from faulting import NAMES, ROUNDS, VICTIM, Trial, end

from diamond.peers.edge_journal import DOWN, UP, EdgeJournal
from diamond.records import checkpoint

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
    return cache, asyncio.run(end(folder, cache))


@pytest.mark.parametrize(("kind", "phase"), CASES)
def test_a_disturbed_run_ends_in_the_bits_of_a_calm_one(tmp_path, calm, kind, phase):
    cache, wanted = calm
    assert asyncio.run(end(tmp_path, cache, kind, phase)) == wanted


async def without_the_victim(folder, cache):
    """All ends of a run whose victim dies and comes back when the others have finished."""
    async with Trial(folder, cache, {"missing": "continue"}) as trial:
        victim = trial.sites[VICTIM]
        for site in trial.sites.values():
            await site.start(*("step", victim.kill) if site is victim else ())
        await victim.held
        told = [await site.end() for site in trial.sites.values() if site is not victim]
        await victim.start()
        return [*told, await victim.end()], trial


def test_sites_go_on_without_one_that_is_killed_and_it_catches_up(tmp_path, calm):
    told, trial = asyncio.run(without_the_victim(tmp_path, calm[0]))
    assert [one["round"] for one in told] == [ROUNDS] * 3
    words, states = {}, []
    for i, name in enumerate(NAMES):
        site = trial.sites[name]
        kept = checkpoint.load(site.folder / "checkpoint", ROUNDS)
        states.append(kept.arrays)
        journal = EdgeJournal([j for j in (i - 1, i + 1) if 0 <= j < 3], kept.notes["run"])
        journal.folder = site.folder / "journal"
        journal.restore(ROUNDS)
        words |= {(i, j): [own.get(t) for t in range(ROUNDS)] for j, own in journal.words.items()}
        journal.close()
    assert words[0, 1] == words[1, 0] and words[1, 2] == words[2, 1]
    assert words[0, 1][:4] == [UP] * 4 and words[0, 1][-1] == words[1, 2][-1] == DOWN
    kept = (".state.memory.x", ".state.old.x")  # u and p
    u, p = (sum(one[name].astype(float) for one in states) for name in kept)
    np.testing.assert_allclose(u, p, atol=1e-6 * np.abs(p).max())
