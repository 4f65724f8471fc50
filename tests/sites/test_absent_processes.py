"""Real sites whose members change while sites are killed and rounds go on without them."""

import random

import numpy as np
import pytest
from churning_sites import INTERACT, NAMES, ChurningSites

from diamond.records import checkpoint_file
from diamond.sites.identity.roster import load_bundle

pytestmark = pytest.mark.slow
ROUNDS, JOIN, LEAVE, KILLS = 4000, 1000, 2000, 20


@pytest.mark.parametrize("deadline", ["", 'deadline = "3 median"'])
def test_kills_at_random_moments_leave_one_roster_and_one_x(tmp_path, deadline):
    policy = f'missing = "continue"\n{deadline}'
    sites = ChurningSites(tmp_path, ROUNDS, JOIN, LEAVE, 50, INTERACT, policy)
    sites.options = ["--round", "3"]  # after which rounds go on without a killed site
    joined, left = sites.sign("joined", JOIN), sites.sign("left", LEAVE)
    sites.deliver(joined, "west")
    generator = random.Random(1)
    moments = sorted(generator.sample(range(50, LEAVE + 200), KILLS))

    def kill():
        name = generator.choice([name for name in NAMES if name not in sites.results])
        if sites.processes[name].poll() is None:
            sites.kill(name)

    actions = [(JOIN + 5, lambda: sites.deliver(left, "north"))]
    actions += [(moment, kill) for moment in moments]
    try:
        for name in NAMES:
            sites.start(name)
        sites.wait(1800, None, sorted(actions, key=lambda action: action[0]))
    finally:
        sites.stop()
    assert sites.kills >= KILLS - 3
    states = []
    for name in (name for name in NAMES if name != "south"):
        assert load_bundle(sites.bundles[name]).roster.version == 3
        place = tmp_path / "runs" / "trial" / name / f"epoch-{LEAVE}" / "checkpoint"
        states.append(checkpoint_file.load(place, ROUNDS).arrays)
    x, u, p = (
        np.stack([state[f".state.{key}x"] for state in states]) for key in ("", "memory.", "old.")
    )
    assert np.abs(u.sum(axis=0) - p.sum(axis=0)).max() < 1e-10
    np.testing.assert_allclose(x, np.broadcast_to(x[0], x.shape), rtol=0, atol=1e-6)
