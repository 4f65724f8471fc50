"""Real processes over mutual TLS, disturbed: the run ends in the bits of one that was not.

These are some of the cases; `benchmarks/faults.py` goes through all of them again and again.
"""

import asyncio

import pytest
from faulting import end

pytestmark = pytest.mark.slow

CASES = [
    ("kill", "transfer"),
    ("stop", "after"),
    ("old checkpoint", "checkpoint"),
    ("cut", "before"),
    ("stall", "transfer"),
    ("truncate", "transfer"),
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
