"""Which neighbours of a site can compare its messages, against all paths of networkx."""

import networkx as nx
import pytest

from diamond.network.comparison_paths import (
    MAX_HOPS,
    comparison_hops,
    describe_comparison,
    distances_without,
)


def neighbours_of(graph):
    return [sorted(graph[i]) for i in range(len(graph))]


def wanted_hops(graph, site):
    """The fewest hops by which the neighbours of `site` are connected without it."""
    rest = nx.restricted_view(graph, [site], [])
    lengths = dict(nx.all_pairs_shortest_path_length(rest))
    others = list(graph[site])
    for hops in range(1, MAX_HOPS + 1):
        pairs = [(j, k) for j in others for k in others if lengths[j].get(k, 10**6) <= hops]
        near = nx.Graph(pairs)
        if len(others) > 1 and nx.is_connected(near):
            return hops
    return None


@pytest.mark.parametrize("seed", range(6))
def test_hops_are_those_of_all_paths(seed):
    graph = nx.gnp_random_graph(9, 0.15 + 0.07 * seed, seed=seed)
    neighbours = neighbours_of(graph)
    assert [comparison_hops(neighbours, i) for i in graph] == [wanted_hops(graph, i) for i in graph]
    rest = nx.restricted_view(graph, [3], [])
    lengths = nx.single_source_shortest_path_length(rest, 0, cutoff=MAX_HOPS)
    assert distances_without(neighbours, 3, 0) == dict(lengths)


def test_known_graphs():
    hops = lambda graph: {comparison_hops(neighbours_of(graph), i) for i in graph}
    assert hops(nx.complete_graph(5)) == {1}
    assert hops(nx.cycle_graph(3)) == {1} and hops(nx.cycle_graph(6)) == {4}
    assert hops(nx.cycle_graph(7)) == {None} and hops(nx.path_graph(3)) == {None}
    assert comparison_hops(neighbours_of(nx.star_graph(4)), 0) is None


def test_sites_that_cannot_be_compared_are_named():
    names = [f"site{i}" for i in range(7)]
    sentence = describe_comparison(neighbours_of(nx.cycle_graph(7)), names)
    assert "the neighbours of site0, site1" in sentence and "add edges" in sentence
    sentence = describe_comparison(neighbours_of(nx.cycle_graph(5)), names)
    assert sentence.endswith("is found within 3 exchanges")
