"""Real sites that join, leave and are killed: the bits of the simulation with the same changes."""

import numpy as np
import pytest
from churning_sites import NAMES, ChurningSites

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
