"""Real sites that join, leave and are killed: the bits of the simulation with the same changes."""

import json
import random
import sys

import numpy as np
import pytest
import write_kill
from churning_sites import NAMES, ChurningSites

from diamond.privacy.private_runs import simulated_words

pytestmark = pytest.mark.slow
ROUNDS, JOIN, LEAVE = 60, 20, 40


# Without sums whose order differs between one site and all at once, for the same bits.
TRACKING = """name = "gt_sgd"
alpha = 0.5
beta = 0.5
batch = 20
hypergradient = {name = "neumann_sum", terms = 30, lipschitz = 0.5}
order = """


@pytest.mark.parametrize("order", ["paper", "atc"])
def test_churn_ends_in_the_bits_of_simulate(tmp_path, order):
    sites = ChurningSites(tmp_path, ROUNDS, JOIN, LEAVE, 5, f'{TRACKING}"{order}"')
    joined, left = sites.sign("joined", JOIN), sites.sign("left", LEAVE)
    sites.deliver(joined, "west")
    try:
        for name in NAMES:
            sites.start(name)
        sites.wait(1800, 10, [(JOIN, lambda: sites.deliver(left, "north"))])
    finally:
        sites.stop()
    assert sites.kills >= 4
    run = sites.simulate()
    ends = {name: site["round"] for name, site in sites.results.items()}
    assert ends == dict.fromkeys(NAMES, ROUNDS) | {"south": LEAVE}
    for i, name in enumerate(NAMES):
        np.testing.assert_allclose(sites.x(name), np.asarray(run.last_x)[i], rtol=0, atol=1e-14)
    assert {name: site["x"] for name, site in sites.results.items()} == sites.digests(run)
    assert max(sites.tracker_gaps().values()) < 1e-12
    assert run.history["upper_loss"][-1] < sites.least_loss() + 1e-4


GOSSIP = """name = "dsgd"
alpha = 0.1
beta = 0.5
batch = 20
hypergradient = {name = "neumann_sum", terms = 30, lipschitz = 0.5}"""
KINDS = {
    "quasi-newton": {"algorithm": 'name = "solve"\nbatch = 4'},
    "learned": {"algorithm": 'name = "diamond"\nbatch = 20'},
    "signed": {"algorithm": f'{TRACKING}"atc"', "more": "signed = true"},
    "masked": {"algorithm": f'{TRACKING}"atc"', "more": "masked = true"},
    "private": {
        "algorithm": f'{TRACKING}"atc"',
        "more": "privacy = {epsilon = 8, delta = 1e-5, clip = 1.0}",
    },
    "robust": {
        "algorithm": GOSSIP,
        "network": '{graph = "complete", agents = {agents}, robust = "clipped"}',
    },
}


@pytest.mark.parametrize("kind", KINDS)
def test_churn_in_every_kind_of_federation(tmp_path, kind):
    """Two sites are killed, one before each change."""
    sites, left = make_sites(tmp_path, kind)
    actions = [(5, lambda: sites.deliver(left, "north"))] if kind == "quasi-newton" else []
    actions += [(10, lambda: sites.kill("south"))]
    if not actions[1:]:
        actions += [(JOIN, lambda: sites.deliver(left, "north")), (30, lambda: sites.kill("east"))]
    run_to_end(sites, kind, actions)


# Operations on these files count, of which there are that many at least, at that site.
WRITES = {
    "ledger": (r"/privacy\.", 300, "west"),
    "epoch": (r"/entry/|/epoch-", 60, "west"),
    "checkpoint": (r"/checkpoint/|/messages/", 60, "south"),
}


@pytest.mark.parametrize("moment", range(3))
@pytest.mark.parametrize("files", WRITES)
def test_a_site_killed_in_the_middle_of_a_write(tmp_path, files, moment):
    """By SIGKILL, as `test_recovery_moments` does it to sites of one process."""
    moments, (pattern, most, site) = random.Random(moment), WRITES[files]
    kind = "private" if files == "ledger" else "signed"
    sites, left = make_sites(tmp_path, kind)
    at, share = moments.randrange(1, most), moments.choice([0.0, 0.5, 1.0])
    sites.wrappers[site] = [sys.executable, write_kill.__file__, tmp_path, pattern, at, share]
    run_to_end(sites, kind, [(JOIN, lambda: sites.deliver(left, "north"))])
    assert sites.kills == 1


def make_sites(folder, kind):
    """Sites, one of which knows of the first change; the roster of the second."""
    sites = ChurningSites(folder, ROUNDS, JOIN, LEAVE, 5, **KINDS[kind])
    if kind == "private":  # with the keys of noise of a simulation
        for i, name in enumerate(NAMES):
            place = folder / "runs" / "trial" / name
            place.mkdir(parents=True)
            (place / "privacy.key").write_bytes(simulated_words(i).tobytes())
    joined, left = sites.sign("joined", JOIN), sites.sign("left", LEAVE)
    sites.deliver(joined, "west")
    return sites, left


def run_to_end(sites, kind, actions):
    """Run all sites to their ends, which are those of the simulation."""
    try:
        for name in NAMES:
            sites.start(name)
        sites.wait(1800, None, actions)
    finally:
        sites.stop()
    run = sites.simulate()
    for i, name in enumerate(NAMES):
        np.testing.assert_allclose(sites.x(name), np.asarray(run.last_x)[i], rtol=1e-9, atol=1e-12)
    if kind == "private":
        for name in NAMES:
            lines = (sites.bundles[name] / "privacy.jsonl").read_text().splitlines()
            rounds = [line["round"] for line in map(json.loads, lines) if "message" in line]
            first, end = JOIN * (name == "centre"), LEAVE if name == "south" else ROUNDS
            assert rounds == [*range(first, end)]
