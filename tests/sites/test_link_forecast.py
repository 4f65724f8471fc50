"""`network_seconds` against the wall time of sites, over sockets with simulated links."""

import asyncio

import numpy as np
import pytest
import shaped_links
from fast_compilation import skip_measures
from lockstep_agents import run_lockstep

import diamond
from diamond.network.links.link_properties import HEADERS

KINDS = {  # what takes the time, the links, rounds
    "latency": (dict(rate=1e8, latency=0.4), 5),
    "rate": (dict(rate=2.5e5, latency=0.01), 4),
    "loss": (dict(rate=1e7, latency=0.03, loss=0.05, timeout=0.2), 30),
}


@pytest.fixture(scope="module")
def team():
    found = shaped_links.team()
    run_lockstep(found, 1)  # compiles
    return found


@pytest.mark.wide
@pytest.mark.parametrize("kind", ["latency", "rate", pytest.param("loss", marks=pytest.mark.slow)])
def test_sites_take_the_predicted_network_seconds(tmp_path, team, kind, monkeypatch):
    skip_measures(monkeypatch)
    link, rounds = KINDS[kind]
    network = shaped_links.NETWORK.with_links(**link)
    run = diamond.simulate(
        shaped_links.problem(), network, shaped_links.ALGORITHM, rounds, every=rounds
    )
    expected = link["latency"] + run.history["network_seconds"][-1]  # what is to come is ordered
    for attempt in range(4):  # a busy machine adds to the time, and never takes from it
        folder = tmp_path / f"attempt{attempt}"
        took, links = asyncio.run(shaped_links.run_sites(folder, team, rounds, **link))
        assert took > 0.7 * expected
        if took < 1.3 * expected:
            break
    assert took < 1.3 * expected
    sent = run.history["bytes"][-1] / len(links)
    asked, answered = np.array([[line.carried for line in pair] for pair in links.values()]).T
    assert (asked < 5_000).all()  # greetings, the first message, the end: the rest comes unasked
    assert (answered > sent).all() and (answered < sent + rounds * 1.5 * HEADERS + 5_000).all()
