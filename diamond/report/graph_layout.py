"""Layout of the agents of a network."""

from functools import lru_cache

import networkx as nx
import numpy as np

CAREFUL = 80  # number of agents up to which the slower, better layout is affordable
PULLS = 200  # iterations of that layout


def positions(agents: int, edges: list[list[int]]) -> list[list[float]]:
    """Return a point in [-1, 1]^2 for every agent, the same for the same network."""
    return _positions(agents, tuple(map(tuple, edges)))


def scaled(places: list[list[float]]) -> list[list[float]]:
    """Move and scale positions into [-1, 1]^2; the longer side fills it."""
    points = np.array(places, float)
    low, high = points.min(0), points.max(0)
    found = (points - (low + high) / 2) * 2 / (max(high - low) or 1.0)
    return [[round(float(coordinate), 4) for coordinate in point] for point in found]


@lru_cache(maxsize=64)  # the live page asks repeatedly
def _positions(agents: int, edges: tuple[tuple[int, ...], ...]) -> list[list[float]]:
    graph = nx.Graph()
    graph.add_nodes_from(range(agents))
    graph.add_edges_from(edges)
    degrees = {degree for _, degree in graph.degree}
    if agents <= 3 or degrees in ({2}, {agents - 1}):  # rings and complete graphs
        found = nx.circular_layout(graph)
    elif agents <= CAREFUL and nx.is_connected(graph):
        found = _by_distance(graph)
    else:
        found = nx.spring_layout(graph, seed=0, iterations=max(10, 20_000 // agents))
    return [[round(float(coordinate), 4) for coordinate in found[i]] for i in range(agents)]


def _by_distance(graph: nx.Graph) -> np.ndarray:
    """Place agents at distances close to their hop counts, weighting near pairs most.

    Minimizes sum_{i<j} (||x_i - x_j|| - d_ij)^2 / d_ij^2, as Kamada and Kawai do, by majorization
    (Gansner, Koren and North, 2004), which avoids the slow import of an optimizer.
    """
    hops = np.array(nx.floyd_warshall_numpy(graph))
    weights = 1 / np.where(hops, hops, np.inf) ** 2
    inverse = np.linalg.pinv(np.diag(weights.sum(1)) - weights)
    points = np.array(list(nx.circular_layout(graph).values()), float) * hops.max() / 2
    for _ in range(PULLS):
        apart = np.linalg.norm(points[:, None] - points[None], axis=-1)
        pull = weights * hops / np.where(apart, apart, np.inf)
        points = inverse @ (np.diag(pull.sum(1)) - pull) @ points
    return points / np.abs(points).max()
