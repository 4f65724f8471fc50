"""Alternative topologies for the agents of a network with links."""

from collections.abc import Sequence
from dataclasses import replace

import networkx as nx
import numpy as np

from .. import network as graphs
from ..network import Network, from_graph
from ..network.links.link_properties import Links
from ..network.links.link_values import REQUIREMENTS as LINK_PROPERTIES
from ..network.mixing_weights import RULES as MIXING_RULES

SAMPLE_BYTES = 10_000  # bytes of the message that compares link speeds


def alternative_networks(network: Network) -> dict[str, Network]:
    """Return alternative networks of the same agents by name; none without links.

    If all links are alike, any two agents may be linked: ring, star, complete and exponential
    graph. If links differ, only existing ones are used: the tree of the fastest links, and that
    tree with the faster half of the others.
    """
    links = network.links
    if links is None or network.agents < 3:
        return {}
    rule = network.mixing if network.mixing in MIXING_RULES else "laplacian"
    if _are_alike(links):
        makers = (graphs.ring, graphs.star, graphs.complete, graphs.exponential)
        networks = [candidate(network.agents, mixing=rule) for candidate in makers]
        networks = [candidate.with_links(**links.to_options()) for candidate in networks]
    else:
        networks = [
            _restrict_to_edges(network, edges, name, rule)
            for name, edges in _fastest_edges(network, links)
        ]
    distinct: dict[frozenset[tuple[int, int]], Network] = {frozenset(network.edges): network}
    for candidate in networks:
        distinct.setdefault(frozenset(candidate.edges), candidate)
    return {
        candidate.name: candidate for candidate in distinct.values() if candidate is not network
    }


def _are_alike(links: Links) -> bool:
    """Return whether all links are alike."""
    values = [getattr(links, name) for name in LINK_PROPERTIES]
    return all(value is None or np.ptp(value) == 0 for value in values)


def _fastest_edges(network: Network, links: Links) -> list[tuple[str, list[tuple[int, int]]]]:
    """Return the edges of the fastest tree, and of it with the faster half of the others."""
    seconds = dict(zip(network.edges, links.seconds(SAMPLE_BYTES)))
    weighted = nx.Graph()
    weighted.add_weighted_edges_from((i, j, s) for (i, j), s in seconds.items())
    tree = [(min(e), max(e)) for e in nx.minimum_spanning_edges(weighted, data=False)]
    others = sorted((e for e in network.edges if e not in tree), key=seconds.__getitem__)
    half = tree + others[: len(others) // 2]
    return [("tree of the fastest links", tree), ("faster half of the links", half)]


def _restrict_to_edges(
    network: Network, edges: Sequence[tuple[int, int]], name: str, rule: str
) -> Network:
    """Return the network restricted to these edges."""
    assert network.links is not None
    graph = nx.Graph(name=name)
    graph.add_nodes_from(network.graph.nodes(data=True))
    graph.add_edges_from(edges)
    restricted, options = from_graph(graph, rule), network.links.to_options()
    index = {edge: e for e, edge in enumerate(network.edges)}
    for key in LINK_PROPERTIES:
        if isinstance(options.get(key), list):
            options[key] = [options[key][index[edge]] for edge in restricted.edges]
    return replace(restricted.with_links(**options), name=name)
