"""The exact mean over all agents: equal bits everywhere, along a spanning tree."""

import jax
import numpy as np
import pytest
from exact_mean_method import ordered_mean
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from diamond import network
from diamond.hardware.sharding import AgentSharding
from diamond.network.channels import delay, drops
from diamond.network.mixing.lossy_mixer import make_mixer
from diamond.network.mixing.sharded_mixer import AXIS, sharded_mixer
from diamond.network.spanning_tree import exact_mean_obstacle

pytestmark = pytest.mark.quick

NETWORKS = {
    "one": network.path(1),
    "pair": network.path(2),
    "path": network.path(5),
    "star": network.star(6),
    "grid": network.grid(4, 5),
    "wide": network.ring(40),
    "directed": network.random_digraph(7, seed=1),
    "one_way": network.one_way_ring(5),
    "changing": network.one_peer(8),
    "drops": network.ring(5).through(drops(0.4)),
}


def rows_of(net, dtype=np.float32):
    return np.random.default_rng(0).normal(size=(net.agents, 3, 2)).astype(dtype)


@pytest.mark.parametrize("name", NETWORKS)
def test_trees_reach_all_agents_over_links(name):
    net = NETWORKS[name]
    tree, m = net.spanning_tree, net.agents
    hears = (net.weights != 0).toarray()
    assert len(tree.up) == len(tree.down) == m - 1
    done, reached = {*range(m)}, {tree.root}
    for child, parent in tree.up:  # a total is complete before it travels
        assert hears[parent, child] and {child, parent} <= done
        done.remove(child)
    for parent, child in tree.down:
        assert hears[child, parent] and parent in reached
        reached.add(child)
    assert done == {tree.root} and reached == {*range(m)}
    for agent in range(m):
        children = [child for child, parent in tree.up if parent == agent]
        assert children == sorted(children)


def test_the_root_is_in_the_middle():
    assert network.path(4).spanning_tree.up == [(3, 2), (0, 1), (2, 1)]
    assert network.star(6).spanning_tree.root == 0
    assert network.grid(5, 5).spanning_tree.root == 12
    assert network.path(101).spanning_tree.root == 50  # more agents than are tried


@pytest.mark.wide
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", NETWORKS)
def test_all_agents_get_the_bits_of_additions_in_order(name, dtype):
    net = NETWORKS[name]
    rows = rows_of(net, dtype)
    # Products before and sums after: neither may be fused with the additions.
    mean = jax.jit(lambda mixer, a, b: (mixer.mean(a * b), mixer.mean(a * b) + b))
    plain, moved = mean(make_mixer(net), rows, 1 + rows)
    expected = ordered_mean(net.spanning_tree, rows * (1 + rows))
    np.testing.assert_array_equal(plain, np.broadcast_to(expected, rows.shape))
    np.testing.assert_array_equal(moved, expected + (1 + rows))
    exact = (rows * (1 + rows)).mean(0, dtype=np.float64)
    np.testing.assert_allclose(expected, exact, atol=20 * np.finfo(dtype).eps)


def test_the_mean_of_equal_numbers_is_this_number():
    for agents in (3, 5, 7, 49):
        rows, mixer = np.full((agents, 2), 1, np.float32), make_mixer(network.ring(agents))
        mean = jax.jit(lambda mixer, a: mixer.mean(a))(mixer, rows)
        np.testing.assert_array_equal(mean, rows)


@pytest.mark.wide(keep=["changing"])
@pytest.mark.parametrize("name", ["path", "grid", "directed", "changing"])
def test_several_devices_get_the_same_bits(name):
    net = NETWORKS[name]
    rows = rows_of(net)
    expected = ordered_mean(net.spanning_tree, rows)
    for parts in (1, 2, 3, 8):
        sharding = AgentSharding(net.agents, parts)
        mixer = sharded_mixer(net, sharding)
        mesh, cut = Mesh(np.array(jax.devices()[:parts]), (AXIS,)), PartitionSpec(AXIS)
        mean = jax.shard_map(
            lambda mixer, a: mixer.mean(a),
            mesh=mesh,
            in_specs=(mixer.specs, cut),
            out_specs=cut,
            check_vma=False,
        )
        placed = jax.device_put(rows[sharding.agent_at_place], NamedSharding(mesh, cut))
        result = np.asarray(jax.jit(mean)(mixer, placed))
        np.testing.assert_array_equal(result, np.broadcast_to(expected, result.shape))


def test_obstacles_are_named():
    ring = network.ring(4)
    obstacles = {
        "its channels change messages": ring.through(drops(0.1), delay(1)),
        "its messages are masked": ring.masked(),
        "its agents may lie": network.complete(7).robust(),
        "its agents exchange in some rounds only": ring.every(2),
    }
    assert {exact_mean_obstacle(net) for net in obstacles.values()} == {*obstacles}
    assert exact_mean_obstacle(ring.with_liar(1, "noise")) == "its agents may lie"
    assert not any(exact_mean_obstacle(net) for net in NETWORKS.values())
