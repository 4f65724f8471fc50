"""Mixing over several devices is mixing: s to M s, in the same bits however the agents are cut."""

import jax
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from diamond import network
from diamond.hardware.sharding import AgentSharding
from diamond.network.mixing.sharded_mixer import AXIS, sharded_mixer

pytestmark = pytest.mark.quick

NETWORKS = {
    "ring": network.ring(9),
    "random": network.erdos_renyi(9, 0.4, seed=1),
    "star": network.star(7),
    "complete": network.complete(5),
    "torus": network.torus(3, 4),
    "wide": network.complete(20),
    "pair": network.path(2),
}
PARTS = (1, 2, 3, 8)  # devices


def changes(net, leaf, parts, way):
    """By how much the devices change `leaf`, a row an agent."""
    cut = AgentSharding(net.agents, parts)
    found = sharded_mixer(net, cut, way)
    mesh = Mesh(np.array(jax.devices()[:parts]), (AXIS,))
    rows = PartitionSpec(AXIS)
    go = jax.shard_map(
        lambda e, s: e(s), mesh=mesh, in_specs=(found.specs, rows), out_specs=rows, check_vma=False
    )
    placed = jax.device_put(leaf[cut.agent_at_place], NamedSharding(mesh, rows))
    return np.asarray(jax.jit(go)(found, placed)), cut


@pytest.mark.wide(keep=["pair-permute"])
@pytest.mark.parametrize("way", ["gather", "permute"])
@pytest.mark.parametrize("name", NETWORKS)
def test_every_cut_mixes_to_the_same_bits(name, way):
    net = NETWORKS[name]
    leaf = np.random.default_rng(0).normal(size=(net.agents, 3, 2))
    found = [changes(net, leaf, parts, way) for parts in PARTS]
    first = found[0][0]
    np.testing.assert_allclose(leaf + first, np.einsum("ij,jkl->ikl", net.matrix, leaf), atol=1e-14)
    for parts, (every, cut) in zip(PARTS, found):
        if net.agents > parts:  # the same bits as long as a device has two agents or more
            np.testing.assert_array_equal(every, first[cut.agent_at_place])
        np.testing.assert_allclose(every, first[cut.agent_at_place], rtol=1e-14, atol=1e-16)


def test_a_ring_sends_one_row_each_way():
    found = sharded_mixer(network.ring(16), AgentSharding(16, 4))
    assert len(found.pairs) == 2 and [rows.shape for rows in found.sends] == [(4, 1), (4, 1)]
    assert {len(set(pairs)) for pairs in found.pairs} == {4}


def test_nobody_sends_or_hears_twice_in_a_colour():
    found = sharded_mixer(network.erdos_renyi(24, 0.3, seed=0), AgentSharding(24, 8), "permute")
    for pairs in found.pairs:
        assert len({a for a, _ in pairs}) == len({b for _, b in pairs}) == len(pairs)


def test_the_way_is_the_cheaper_one():
    assert sharded_mixer(network.complete(16), AgentSharding(16, 4)).pairs == ()
    assert sharded_mixer(network.torus(8, 8), AgentSharding(64, 4)).pairs != ()
