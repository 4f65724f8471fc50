"""Graphs, mixing matrices, their spectra, and the mixer used in compiled programs."""

import pathlib
import random
import subprocess
import sys
import time

import jax
import jax.numpy as jnp
import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array

from diamond import network
from diamond.network import spectrum
from diamond.network.mixing.mixer import PASS, dense_mixer, mixer, prefers_dense, sparse_mixer

RULES = ["laplacian", "metropolis", "max_degree", "best_constant"]

# A six-agent graph whose lam is known for three rules: 13/15, 3/4 and 2/3.
SIX = nx.Graph([(0, 1), (0, 3), (0, 5), (1, 2), (2, 3), (3, 4), (4, 5)])


@st.composite
def connected_graphs(draw):
    """A random tree, so that the graph is connected, and any further edges."""
    agents = draw(st.integers(1, 14))
    graph = nx.empty_graph(agents)
    graph.add_edges_from((draw(st.integers(0, i - 1)), i) for i in range(1, agents))
    pairs = [(i, j) for i in range(agents) for j in range(i)]
    if pairs:
        graph.add_edges_from(draw(st.lists(st.sampled_from(pairs), max_size=30)))
    return graph


def mixed_by_hand(net, leaf):
    return np.tensordot(net.matrix, np.asarray(leaf, np.float64), axes=1)


@pytest.fixture
def x64():
    before = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", True)
    yield
    jax.config.update("jax_enable_x64", before)


# Mixing rules


@settings(max_examples=60, deadline=None)
@given(connected_graphs(), st.sampled_from(RULES))
def test_every_rule_mixes_every_graph(graph, rule):
    net = network.from_graph(graph, rule)
    m = net.matrix
    np.testing.assert_array_equal(m, m.T)
    np.testing.assert_allclose(m.sum(axis=0), 1, atol=1e-14)
    assert (m >= 0).all()
    off_diagonal = m - np.diag(np.diag(m))
    np.testing.assert_array_equal(off_diagonal != 0, nx.to_numpy_array(graph, range(len(graph))))
    assert 0 <= net.lam < 1 - 1e-6
    eigenvalues = np.sort(np.abs(np.linalg.eigvalsh(m)))
    assert net.lam == pytest.approx(eigenvalues[-2] if len(graph) > 1 else 0.0, abs=1e-12)
    if rule != "best_constant":
        assert (np.diag(m) > 0).all()


@settings(max_examples=30, deadline=None)
@given(connected_graphs().filter(lambda graph: len(graph) > 1))
def test_best_constant_has_the_smallest_lam_of_constant_weights(graph):
    best = network.from_graph(graph, "best_constant")
    v = nx.laplacian_matrix(graph, nodelist=range(len(graph))).toarray()
    d_max = np.diag(v).max()
    for a in np.linspace(0.01, 1, 50) / d_max:
        m = np.eye(len(graph)) - a * v
        assert best.lam <= np.linalg.norm(m - 1 / len(graph), 2) + 1e-9


@pytest.mark.parametrize(
    "rule, lam", [("laplacian", 13 / 15), ("metropolis", 3 / 4), ("best_constant", 2 / 3)]
)
def test_six_agents(rule, lam):
    assert network.from_graph(SIX, rule).lam == pytest.approx(lam, abs=1e-12)


def test_path_of_three_by_hand():
    # V = [[1, -1, 0], [-1, 2, -1], [0, -1, 1]] has eigenvalues 0, 1, 3.
    v = np.array([[1, -1, 0], [-1, 2, -1], [0, -1, 1]])
    expected = {
        "laplacian": np.eye(3) - 2 * v / 9,
        "metropolis": np.eye(3) - v / 3,
        "max_degree": np.eye(3) - v / 3,
        "best_constant": np.eye(3) - v / 2,
    }
    for rule, m in expected.items():
        np.testing.assert_allclose(network.path(3, rule).matrix, m, atol=1e-15)


def test_metropolis_uses_the_larger_degree():
    m = network.from_graph(SIX, "metropolis").matrix  # degrees 3, 2, 2, 3, 2, 2
    labels = list(SIX)
    i, j, k = (labels.index(node) for node in (0, 1, 2))
    assert m[i, j] == 1 / 4
    assert m[j, k] == 1 / 3


@pytest.mark.parametrize("agents", [3, 4, 9, 10])
def test_lam_of_rings(agents):
    rho = max(2 - 2 * np.cos(2 * np.pi * k / agents) for k in range(agents))
    rho_2 = 2 - 2 * np.cos(2 * np.pi / agents)
    assert network.ring(agents).lam == pytest.approx(1 - 2 * rho_2 / (3 * rho), abs=1e-12)
    third = max(abs(1 - (2 - 2 * np.cos(2 * np.pi * k / agents)) / 3) for k in range(1, agents))
    assert network.ring(agents, "metropolis").lam == pytest.approx(third, abs=1e-12)


@pytest.mark.parametrize("agents", [2, 5, 12])
def test_lam_of_complete_graphs(agents):
    assert network.complete(agents).lam == pytest.approx(1 / 3, abs=1e-12)
    assert network.complete(agents, "metropolis").lam == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("dimension", [1, 3, 5])
def test_lam_of_hypercubes(dimension):
    # The Laplacian has eigenvalues 2k, k = 0..dimension.
    assert network.hypercube(dimension).lam == pytest.approx(1 - 2 / (3 * dimension), abs=1e-12)
    expected = (dimension - 1) / (dimension + 1)
    assert network.hypercube(dimension, "max_degree").lam == pytest.approx(expected, abs=1e-12)


# Large graphs


@pytest.mark.wide
@pytest.mark.parametrize("rule", RULES)
def test_large_ring_is_built_fast_and_exactly(rule):
    agents = 4096
    start = time.process_time()
    net = network.ring(agents, rule)
    assert time.process_time() - start < 2
    rho_2 = 2 - 2 * np.cos(2 * np.pi / agents)
    weight = {"laplacian": 1 / 6, "best_constant": 2 / (4 + rho_2)}.get(rule, 1 / 3)
    np.testing.assert_allclose(net.weights.diagonal(), 1 - 2 * weight, atol=1e-9)
    assert 1 - net.lam == pytest.approx(weight * rho_2, rel=1e-4)


@pytest.mark.parametrize(
    "net",
    [
        network.ring(601),
        network.star(300, "max_degree"),
        network.torus(15, 20, "best_constant"),
        network.erdos_renyi(300, 0.03, mixing="metropolis"),
    ],
    ids=lambda net: net.name,
)
def test_sparse_eigenvalues_equal_dense_ones(net):
    dense = np.linalg.eigvalsh(net.matrix)
    for dense_up_to in (0, 10_000):
        found = spectrum.largest_eigenvalues(net.weights, 2, 1 + 1e-7, dense_up_to)
        np.testing.assert_allclose(found, dense[-2:], atol=1e-9)
        found = spectrum.largest_eigenvalues(-net.weights, 1, 1 + 1e-7, dense_up_to)
        np.testing.assert_allclose(found, -dense[0], atol=1e-9)


def test_contraction_beyond_the_dense_limit():
    assert network.hypercube(12).lam == pytest.approx(1 - 2 / 36, abs=1e-8)
    # Complete and bipartite, metropolis weights: lambda_2 = 1/(a+1), lambda_m = -(a-1)/(a+1).
    a = 1100
    both_ways = np.kron([[0, 1], [1, 0]], np.ones((a, a)))
    weights = csr_array((both_ways + np.eye(2 * a)) / (a + 1))
    assert spectrum.contraction(weights) == pytest.approx((a - 1) / (a + 1), abs=1e-9)


# Graphs


def test_shapes_of_the_graphs():
    assert network.ring(5).edges == [(0, 1), (0, 4), (1, 2), (2, 3), (3, 4)]
    assert network.ring(2).edges == [(0, 1)]
    assert network.path(4).edges == [(0, 1), (1, 2), (2, 3)]
    assert network.star(4).edges == [(0, 1), (0, 2), (0, 3)]
    assert len(network.complete(6).edges) == 15
    assert network.grid(2, 3).edges == [(0, 1), (0, 3), (1, 2), (1, 4), (2, 5), (3, 4), (4, 5)]
    assert network.grid(2, 3).labels[4] == (1, 1)
    assert list(network.torus(3, 4).degrees) == [4] * 12
    assert network.torus(1, 3).edges == [(0, 1), (0, 2), (1, 2)]
    assert network.hypercube(2).edges == [(0, 1), (0, 2), (1, 3), (2, 3)]
    assert network.exponential(8).graph[0].keys() == {1, 2, 4, 6, 7}
    assert network.exponential(9).graph[0].keys() == {1, 2, 4, 8, 7, 5}
    assert set(network.regular(10, 3).degrees) == {3}
    near = network.geometric(12, 0.5)
    place = np.array([near.graph.nodes[i]["pos"] for i in range(12)])
    distance = np.linalg.norm(place[:, None] - place, axis=2)
    assert near.edges == [
        (i, j) for i in range(12) for j in range(i + 1, 12) if distance[i, j] <= 0.5
    ]


@pytest.mark.parametrize("rule", RULES)
def test_one_agent(rule):
    lonely = nx.Graph()
    lonely.add_node("a")
    for net in [
        network.erdos_renyi(1, mixing=rule),
        network.ring(1, rule),
        network.path(1, rule),
        network.star(1, rule),
        network.complete(1, rule),
        network.exponential(1, rule),
        network.grid(1, 1, rule),
        network.torus(1, 1, rule),
        network.hypercube(0, rule),
        network.regular(1, 0, mixing=rule),
        network.geometric(1, 0.5, mixing=rule),
        network.from_graph(lonely, rule),
    ]:
        np.testing.assert_array_equal(net.matrix, [[1.0]])
        assert (net.lam, net.edges, net.rounds_to_mix()) == (0.0, [], 0)
    assert network.from_graph(lonely, [[1.0]]).mixing == "custom"


def test_from_graph_numbers_nodes_in_their_order_and_keeps_labels():
    graph = nx.Graph([("c", "a"), ("a", "b")])
    graph.add_edge("c", "a", weight=7.0)  # not a mixing weight
    net = network.from_graph(graph)
    assert net.labels == ("c", "a", "b")
    assert net.edges == [(0, 1), (1, 2)]
    assert net.matrix[0, 1] == pytest.approx(2 / 9)  # as in path(3)
    assert list(net.graph) == [0, 1, 2]


def test_listed_edges_number_agents_in_their_order():
    numbered = network.Network.from_edges([[0, 2], [2, 1]])
    assert numbered.edges == [(0, 2), (1, 2)] and numbered.title.startswith("edges(3)")
    np.testing.assert_array_equal(numbered.matrix, network.from_graph(numbered.graph).matrix)
    named = network.from_edges([["north", "west"], ["west", "east"]], ["east", "north", "west"])
    assert named.labels == ("east", "north", "west") and named.edges == [(0, 2), (1, 2)]
    assert network.from_edges([["b", "a"]]).labels == ("b", "a")


def test_a_disconnected_draw_is_drawn_again_from_the_same_generator():
    source = random.Random(0)
    expected = 0
    while True:
        graph = nx.fast_gnp_random_graph(9, 0.3, seed=source)
        expected += 1
        if nx.is_connected(graph):
            break
    net = network.erdos_renyi(9, 0.3, seed=0)
    assert net.draws == expected
    assert net.edges == sorted((min(e), max(e)) for e in graph.edges)


def test_draws_are_reproducible_and_often_disconnected():
    nets = [network.erdos_renyi(9, 0.3, seed=seed) for seed in range(60)]
    again = [network.erdos_renyi(9, 0.3, seed=seed) for seed in range(60)]
    assert [n.edges for n in nets] == [n.edges for n in again]
    assert [n.draws for n in nets] == [n.draws for n in again]
    assert 0.2 < np.mean([n.draws > 1 for n in nets]) < 0.6  # 41 % in the long run
    assert nets[0].edges != nets[1].edges


def test_connected_false_keeps_a_connected_first_draw():
    seeds = {
        net.draws == 1: seed for seed in range(20) if (net := network.erdos_renyi(9, seed=seed))
    }
    single_draw = network.erdos_renyi(9, seed=seeds[True], connected=False)
    assert single_draw.edges == network.erdos_renyi(9, seed=seeds[True]).edges
    with pytest.raises(
        ValueError,
        match=rf"the graph with seed {seeds[False]} has \d components; "
        "pass connected=True to redraw, or raise p",
    ):
        network.erdos_renyi(9, seed=seeds[False], connected=False)


def test_network_properties():
    net = network.star(5, "metropolis")
    assert net.agents == 5
    assert list(net.degrees) == [4, 1, 1, 1, 1]
    assert net.diameter == 2
    assert net.weights.has_sorted_indices and net.weights.nnz == 5 + 8
    assert net.lam == pytest.approx(0.8)
    assert net.rounds_to_mix() == 31  # 0.8^31 < 1e-3 < 0.8^30
    assert net.rounds_to_mix(0.5) == 4
    assert network.complete(4, "metropolis").rounds_to_mix() == 1
    # An empty diagonal entry is stored all the same.
    assert network.star(5, "best_constant").weights.nnz == 5 + 8
    assert network.star(5, "best_constant").matrix[0, 0] == 0


def test_a_network_cannot_change():
    net = network.ring(4)
    with pytest.raises(nx.NetworkXError):
        net.graph.add_edge(0, 2)
    with pytest.raises(ValueError):
        net.weights.data[0] = 1.0
    with pytest.raises(AttributeError):
        net.name = "other"


def test_repr():
    ring = network.ring(9, "metropolis")
    assert repr(ring) == f"ring(9): 9 agents, 9 edges, metropolis mixing, lam = {ring.lam:.3f}"
    seed = next(s for s in range(50) if network.erdos_renyi(9, seed=s).draws == 2)
    net = network.erdos_renyi(9, seed=seed)
    assert str(net) == (
        f"erdos_renyi(9, p=0.3, seed={seed}): 9 agents, {len(net.edges)} edges, laplacian mixing, "
        f"lam = {net.lam:.3f}, drawn 2 times"
    )
    assert str(network.path(1)) == "path(1): 1 agent, 0 edges, laplacian mixing, lam = 0.000"
    assert "lam = 1 - 1.6e-04" in repr(network.ring(200))


# Refusals


@pytest.mark.parametrize(
    "make, sentence",
    [
        (lambda: network.ring(0), "agents = 0 must be a whole number, 1 or more"),
        (lambda: network.star(-3), "agents = -3 must be a whole number, 1 or more"),
        (lambda: network.path(2.5), "agents = 2.5 must be a whole number"),
        (lambda: network.complete("9"), "agents = '9' must be a whole number"),
        (lambda: network.exponential(True), "agents = True must be"),
        (lambda: network.grid(2, 0), "columns = 0 must be"),
        (lambda: network.torus(0, 2), "rows = 0 must be"),
        (lambda: network.hypercube(-1), "dimension = -1 must be a whole number, 0 or more"),
        (lambda: network.erdos_renyi(9, 1.5), "p is 1.5; an edge probability lies between 0 and 1"),
        (lambda: network.erdos_renyi(9, float("nan")), "p is nan"),
        (lambda: network.erdos_renyi(9, seed=None), "seed = None must be a whole number"),
        (lambda: network.geometric(9, 0), "radius is 0; it must be a positive distance"),
        (lambda: network.regular(5, 3), "no graph has 5 agents of degree 3: their product is odd"),
        (lambda: network.regular(4, 4), "degree is 4, but 4 agents have at most 3 neighbours each"),
        (
            lambda: network.erdos_renyi(9, 0.0),
            "none of 1000 draws of erdos_renyi(9, p=0.0, seed=0) was connected; raise p",
        ),
        (
            lambda: network.regular(4, 1, connected=False),
            "the graph with seed 0 has 2 components; "
            "pass connected=True to redraw, or raise degree",
        ),
        (
            lambda: network.geometric(9, 0.01),
            "none of 1000 draws of geometric(9, radius=0.01, seed=0) was connected; raise radius",
        ),
        (
            lambda: network.ring(9, "metropolys"),
            "no mixing rule 'metropolys'; did you mean metropolis?",
        ),
        (lambda: network.from_graph(nx.DiGraph([(0, 1)])), "the graph is directed"),
        (lambda: network.from_graph(nx.MultiGraph([(0, 1)])), "the graph has parallel edges"),
        (lambda: network.from_graph(nx.Graph()), "the graph has no nodes"),
        (lambda: network.from_graph(nx.Graph([("a", "a")])), "the graph joins 'a' with itself"),
        (
            lambda: network.from_graph(nx.Graph([(0, 1), ("x", "y"), (1, 2)])),
            "the graph has 2 components, one of them {'x', 'y'}",
        ),
        (lambda: network.from_edges([[0, 0]]), "[0, 0] is no pair of two agents"),
        (lambda: network.from_edges([[0, 1, 2]]), "[0, 1, 2] is no pair of two agents"),
        (lambda: network.from_edges([]), "edges: give every agent by its number"),
        (lambda: network.from_edges([[0, "a"]]), "edges: give every agent by its number, or every"),
        (lambda: network.from_edges([[0, 10**12]]), "no agent 1000000000000; there are 0, 1"),
        (lambda: network.from_edges([[0, 1]], 3), "agents = 3, but the edges join 2; join all"),
        (lambda: network.from_edges([["a", "b"]], 2), "agents = 2, but the edges have names"),
        (lambda: network.from_edges([[0, 1]], ["a", "b"]), "agents are names, but the edges have"),
        (lambda: network.from_edges([["a", "c"]], ["a", "b"]), "no agent 'c'; there are a, b"),
        (lambda: network.from_edges([["a", "b"]], ["a", "b", "c"]), "one of them {'c'}"),
        (lambda: network.ring(4).rounds_to_mix(1.0), "tolerance is 1.0; it must lie between"),
    ],
)
def test_refusals(make, sentence):
    with pytest.raises(ValueError) as refusal:
        make()
    assert sentence in str(refusal.value)


def test_an_unknown_rule_far_from_all_has_no_suggestion():
    with pytest.raises(ValueError, match=r"best_constant$"):
        network.ring(3, "xyzzy")


def test_from_graph_takes_a_graph():
    with pytest.raises(TypeError, match="takes a networkx graph, and was given ndarray"):
        network.from_graph(np.eye(3))


def changed(*changes):
    """The metropolis matrix of path(4) with some entries changed."""
    m = network.path(4, "metropolis").matrix
    for (i, j), value in changes:
        m[i, j] += value
    return m


@pytest.mark.parametrize(
    "matrix, sentence",
    [
        (np.eye(3), "the mixing matrix has shape (3, 3); 4 agents need one of shape (4, 4)"),
        (np.ones(4), "the mixing matrix has shape (4,)"),
        (np.eye(4).astype(str), "the mixing matrix has entries of type <U"),
        (changed(((2, 1), np.nan)), "M[2, 1] = nan; every entry must be finite"),
        (changed(((0, 1), 0.1)), "M[0, 1] = 0.433333 but M[1, 0] = 0.333333; it must be symmetric"),
        (
            changed(((0, 1), -0.5), ((1, 0), -0.5), ((0, 0), 0.5), ((1, 1), 0.5)),
            "M[0, 1] = -0.166667; no weight may be negative",
        ),
        (changed(((2, 2), 0.1)), "row 2 of the mixing matrix sums to 1.1"),
        (changed().astype(np.float32), "every row and column must sum to 1, in float64"),
        (
            changed(((0, 2), 0.1), ((2, 0), 0.1), ((0, 0), -0.1), ((2, 2), -0.1)),
            "M[0, 2] = 0.1 but the graph has no edge (0, 2); add the edge or set it to 0",
        ),
        (
            changed(((2, 3), -1 / 3), ((3, 2), -1 / 3), ((2, 2), 1 / 3), ((3, 3), 1 / 3)),
            "M[2, 3] = 0 but the graph has the edge (2, 3); give it a weight",
        ),
    ],
)
def test_a_wrong_matrix_is_refused(matrix, sentence):
    with pytest.raises(ValueError) as refusal:
        network.path(4, matrix)
    assert sentence in str(refusal.value)


def test_a_matrix_that_only_swaps_is_refused():
    swap = [[0, 0.5, 0, 0.5], [0.5, 0, 0.5, 0], [0, 0.5, 0, 0.5], [0.5, 0, 0.5, 0]]
    with pytest.raises(ValueError, match="lam = 1: every M_ii is 0 and the graph is bipartite"):
        network.ring(4, swap)
    # An odd ring is not bipartite: the same weights mix.
    odd = 0.5 * nx.to_numpy_array(nx.cycle_graph(5))
    assert network.ring(5, odd).lam < 0.9


@pytest.mark.parametrize("form", [np.asarray, np.ndarray.tolist, csr_array])
def test_a_right_matrix_is_taken_as_it_is(form):
    m = network.path(4, "max_degree").matrix
    net = network.path(4, form(m))
    assert net.mixing == "custom"
    np.testing.assert_array_equal(net.matrix, m)


# Mixer

NETS = [
    network.ring(30),
    network.ring(2),
    network.path(1),
    network.star(100, "metropolis"),
    network.star(40, "best_constant"),
    network.erdos_renyi(60, 0.1, mixing="metropolis"),
    network.complete(PASS + 9),
    network.hypercube(4),
]


@pytest.mark.wide(keep=["star(100)-mixer"])
@pytest.mark.parametrize("form", [dense_mixer, sparse_mixer, mixer])
@pytest.mark.parametrize("net", NETS, ids=lambda net: net.name)
def test_mixer_is_the_matrix(net, form, x64):
    rng = np.random.default_rng(0)
    tree = {
        "scalar": jnp.asarray(rng.standard_normal(net.agents)),
        "single": jnp.asarray(rng.standard_normal((net.agents, 7)), jnp.float32),
        "pair": (jnp.asarray(rng.standard_normal((net.agents, 2, 3))),),
        "alike": jnp.full((net.agents, 2), 1e6 / 3, jnp.float32),
    }
    changes = jax.jit(lambda mix, tree: mix(tree))(form(net), tree)
    assert jax.tree.structure(changes) == jax.tree.structure(tree)
    np.testing.assert_array_equal(changes["alike"], 0)  # agreement is never rounded away
    for before, change in zip(jax.tree.leaves(tree), jax.tree.leaves(changes), strict=True):
        assert (change.dtype, change.shape) == (before.dtype, before.shape)
        after = before + change
        tolerance = 1e-6 if after.dtype == jnp.float32 else 1e-14
        np.testing.assert_allclose(after, mixed_by_hand(net, before), atol=tolerance)
        np.testing.assert_allclose(np.mean(change, axis=0), 0, atol=tolerance)


@settings(max_examples=50, deadline=None)
@given(connected_graphs(), st.sampled_from(RULES))
def test_buckets_hold_the_matrix(graph, rule):
    net = network.from_graph(graph, rule)
    mix = sparse_mixer(net)
    rows = []
    for bucket in mix.buckets:
        part = np.zeros((bucket.senders.shape[1], net.agents), np.float32)
        for sender, weight in zip(
            np.asarray(bucket.senders), np.asarray(bucket.weights), strict=True
        ):
            part[np.arange(len(part)), sender] += weight
        rows.append(part)
    stacked = np.concatenate(rows)
    places = slice(None) if mix.places is None else np.asarray(mix.places)
    np.testing.assert_allclose(stacked[places], net.matrix, atol=1e-7)


def test_mixer_chooses_its_form():
    assert mixer(network.ring(9)).matrix is not None
    assert mixer(network.complete(64)).matrix is not None
    assert mixer(network.ring(64)).matrix is None
    assert mixer(network.ring(64)).places is None  # one bucket needs no permutation
    assert mixer(network.star(64)).places is not None
    assert not prefers_dense(1024, 3 * 1024)


def test_sparse_storage_grows_with_the_edges():
    for net in (network.star(1000), network.ring(1000), network.erdos_renyi(1000, 0.01)):
        stored = sum(bucket.senders.size for bucket in sparse_mixer(net).buckets)
        assert stored <= 2 * net.weights.nnz + 2 * PASS


def test_a_new_network_of_the_same_shape_does_not_recompile():
    traces = 0

    @jax.jit
    def mix(m, tree):
        nonlocal traces
        traces += 1
        return m(tree)

    leaf = jnp.arange(24.0).reshape(24, 1)
    for form, nets in [
        (
            sparse_mixer,
            [
                network.ring(24),
                network.ring(24, "metropolis"),
                network.from_graph(
                    nx.relabel_nodes(
                        nx.cycle_graph(24), {i: i * 5 % 24 for i in range(24)}, copy=True
                    )
                ),
            ],
        ),
        (dense_mixer, [network.ring(24), network.erdos_renyi(24), network.star(24)]),
    ]:
        traces = 0
        for net in nets:
            mixed = leaf + mix(form(net), leaf)
            np.testing.assert_allclose(mixed, mixed_by_hand(net, leaf), atol=1e-5)
        assert traces == 1


def test_sparse_sum_runs_in_the_order_of_neighbours(x64):
    # A small number before two large ones of opposite sign is rounded, after them it is not.
    net = network.complete(4, "metropolis")
    w = net.matrix[0]
    in_order = (w[1] * 3.0 + w[2] * 3e16) + w[3] * -3e16
    assert in_order != (w[3] * -3e16 + w[2] * 3e16) + w[1] * 3.0
    assert sparse_mixer(net)(jnp.array([0.0, 3.0, 3e16, -3e16]))[0] == in_order


@pytest.mark.wide
@pytest.mark.parametrize("net", [network.ring(5), network.erdos_renyi(9, 0.4), network.star(PASS)])
def test_all_forms_of_a_small_network_give_the_same_bits(net):
    leaf = jnp.asarray(np.random.default_rng(0).standard_normal((net.agents, 50)), jnp.float32)
    np.testing.assert_array_equal(dense_mixer(net)(leaf), sparse_mixer(net)(leaf))


def test_mixer_refuses_leaves_it_cannot_mix():
    mix = mixer(network.ring(9))
    with pytest.raises(
        ValueError, match=r"leaf\['w'\] has shape \(5, 2\); its first axis must be the 9"
    ):
        mix({"w": jnp.ones((5, 2))})
    with pytest.raises(ValueError, match=r"has shape \(\)"):
        mix(jnp.ones(()))
    with pytest.raises(TypeError, match="is of type int32, which has no averages"):
        mix(jnp.ones((9, 2), jnp.int32))


def test_graphs_need_no_jax():
    # A bare stand-in for the package, whose own __init__ may import what it likes.
    package = str(pathlib.Path(network.__file__).parents[1])
    code = (
        "import sys, types; sys.modules['jax'] = None; "
        "sys.modules['diamond'] = bare = types.ModuleType('diamond'); "
        f"bare.__path__ = [{package!r}]; import diamond.network; diamond.network.ring(3)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
