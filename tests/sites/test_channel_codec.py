"""Compressed messages between sites: the simulated trajectory, in the counted number of bytes."""

from itertools import count

import numpy as np
import pytest
from crash_cluster import ROUNDS, Cluster, Killed, watch_instants
from fast_compilation import without_optimizations
from helpers import final_progress, flat, quad, ring, same_bits
from lockstep_agents import agents, run_lockstep, stack_states

import diamond
from diamond.hypergradient import exact
from diamond.interface.traffic import count_traffic
from diamond.network import channels
from diamond.sites.rounds.local_measures import disagreement
from diamond.sites.transport import wire_format

ONE = diamond.gt_sgd(0.05, batch=3, order="paper"), "none"
TWO = (
    diamond.compose(  # exchanges a round, the first of two arrays
        "carried",
        "full",
        "gt",
        "gt",
        update_order="yz x",
        alpha=0.05,
        beta=0.2,
        delta=0.2,
        order="paper",
    ),
    "common",
)
CHANNELS = {
    "float16": [channels.rounded("float16")],
    "bfloat16": [channels.rounded("bfloat16")],
    "4 bits": [channels.quantized(4)],
    "3 bits": [channels.quantized(3, feedback="error")],
    "top": [channels.top(0.5), channels.delay(1)],
    "random": [channels.random(0.5)],
    "sign": [channels.sign()],
    "low rank": [channels.low_rank(1, feedback="none")],
    "delay": [channels.delay(2)],
}


FIRST = ["float16", "3 bits", "top", "random"]


@pytest.mark.wide(keep=["3 bits", "top"])
@pytest.mark.parametrize(
    "name", [n if n in FIRST else pytest.param(n, marks=pytest.mark.slow) for n in CHANNELS]
)
def test_compressed_sites_equal_the_simulation_in_trajectory_and_bytes(name):
    method, level = TWO if name == "random" else ONE
    problem, network = quad(lower_level=level), ring(4).through(*CHANNELS[name])
    with without_optimizations():
        wanted = final_progress(problem, network, method, 4, seed=4)
        team = agents(problem, network, method, seed=4)
        found = run_lockstep(team, 4)
    np.testing.assert_allclose(flat(wanted.state), flat(stack_states(found)), atol=1e-9)
    traffic = count_traffic(
        team[0].template, team[0].objectives, *problem.start(0), network.channels
    )
    exchanges = range(team[0].exchange_count)
    arrays = [
        team[0].outgoing_arrays(found[0], exchange, team[0].compute(found[0], exchange))
        for exchange in exchanges
    ]
    frames = [wire_format.encode(wire_format.Envelope("", 0, 4, 0), one) for one in arrays]
    sent = [len(wire_format.unpack(one, 10**6)[1]) for one in frames]
    assert sum(sent) == team[0].bytes_per_round == traffic.bytes


def test_a_killed_site_restores_its_channel_states(tmp_path, monkeypatch):
    method = diamond.gt_sgd(0.05, 0.2, 3, exact(), order="paper")
    network = diamond.network.path(3).through(channels.quantized(4))
    with without_optimizations():
        team = tuple(agents(quad(agents=3), network, method))
        wanted = run_lockstep(team, ROUNDS)
        cluster, seen = Cluster(tmp_path, agents=team), count()

        def on_instant(agent, label):
            if agent == 1 and next(seen) == 33:
                raise Killed

        with watch_instants(monkeypatch, on_instant):
            found = cluster.run()
        assert cluster.deaths + cluster.late_kills == 1
        assert all(same_bits(one, other) for one, other in zip(found, wanted, strict=True))
        copies = [np.asarray(states[0].average["x"]) for states in found[1].channel_states[0]]
        apart = ((copies[1] - np.mean(copies, 0)) ** 2).sum()
        messages = [{j: team[j].outgoing_arrays(found[j], 0, None) for j in range(3)}]
        assert disagreement(team[1], messages, found[1]) == float(apart) > 0
