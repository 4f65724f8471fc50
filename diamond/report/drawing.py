"""Where to draw the agents of a network."""

from functools import lru_cache

import networkx as nx

CAREFUL = 80  # agents up to which the slower and better layout is affordable


def positions(agents: int, edges: list[list[int]]) -> list[list[float]]:
    """A point in [-1, 1]^2 for every agent, the same for the same network."""
    return _positions(agents, tuple(map(tuple, edges)))


@lru_cache(maxsize=64)  # the live page asks again and again
def _positions(agents: int, edges: tuple[tuple[int, ...], ...]) -> list[list[float]]:
    graph = nx.Graph()
    graph.add_nodes_from(range(agents))
    graph.add_edges_from(edges)
    degrees = {degree for _, degree in graph.degree}
    if agents <= 3 or degrees in ({2}, {agents - 1}):  # rings and complete graphs
        found = nx.circular_layout(graph)
    elif agents <= CAREFUL and nx.is_connected(graph):
        found = nx.kamada_kawai_layout(graph)
    else:
        found = nx.spring_layout(graph, seed=0, iterations=max(10, 20_000 // agents))
    return [[round(float(coordinate), 4) for coordinate in found[i]] for i in range(agents)]
