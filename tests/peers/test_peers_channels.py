"""Compression is real on the wire: the simulated trajectory, in as many bytes as are counted."""

import numpy as np
import pytest
from compiling import quickly
from crashing import ROUNDS, Cluster, Killed
from helpers import end, flat, quad, ring, same_bits
from peering import agents, lockstep, stacked

import diamond
from diamond.network import channels
from diamond.peers import frame
from diamond.rounds.traffic import traffic

METHOD = diamond.sparkle(alpha=0.05, beta=0.2, delta=0.2, theta=0.5, batch=3, plan="yz x")
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


@pytest.mark.parametrize("name", CHANNELS)
def test_sites_go_the_way_of_the_simulation_in_the_bytes_that_are_counted(name):
    problem, network = quad(lower_level="common").problem, ring(4).through(*CHANNELS[name])
    with quickly():
        wanted = end(problem, network, METHOD, 4, seed=4)
        team = agents(problem, network, METHOD, seed=4)
        found = lockstep(team, 4)
    np.testing.assert_allclose(flat(wanted.state), flat(stacked(found)), atol=1e-9)
    told = traffic(METHOD, team[0].objectives, *problem.start(0), network.channels)
    arrays = [team[0].tell(found[0], turn, team[0].think(found[0], turn)) for turn in (0, 1)]
    frames = [frame.encode(frame.Envelope("", 0, 4, 0), one) for one in arrays]
    sent = [len(frame.unpack(one, 10**6)[1]) for one in frames]
    assert sum(sent) == team[0].bytes == told.bytes
