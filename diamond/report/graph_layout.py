"""Layout of the agents of a network."""

from functools import lru_cache

import networkx as nx
import numpy as np

MAX_CAREFUL_AGENTS = 80  # number of agents up to which the slower, better layout is affordable
ITERATIONS = 200  # iterations of that layout


def layout_agents(agents: int, edges: list[list[int]]) -> list[list[float]]:
    """Return a point in [-1, 1]^2 for every agent, the same for the same network."""
    return _cached_layout(agents, tuple(map(tuple, edges)))


def scale_positions(positions: list[list[float]]) -> list[list[float]]:
    """Move and scale positions into [-1, 1]^2; the longer side fills it."""
    points = np.array(positions, float)
    low, high = points.min(0), points.max(0)
    scaled = (points - (low + high) / 2) * 2 / (max(high - low) or 1.0)
    return [[round(float(coordinate), 4) for coordinate in point] for point in scaled]


@lru_cache(maxsize=64)  # the live page asks repeatedly
def _cached_layout(agents: int, edges: tuple[tuple[int, ...], ...]) -> list[list[float]]:
    graph = nx.Graph()
    graph.add_nodes_from(range(agents))
    graph.add_edges_from(edges)
    degrees = {degree for _, degree in graph.degree}
    if agents <= 3 or degrees in ({2}, {agents - 1}):  # rings and complete graphs
        layout = nx.circular_layout(graph)
    elif agents <= MAX_CAREFUL_AGENTS and nx.is_connected(graph):
        layout = _layout_by_distance(graph)
    else:
        layout = nx.spring_layout(graph, seed=0, iterations=max(10, 20_000 // agents))
    return [[round(float(coordinate), 4) for coordinate in layout[i]] for i in range(agents)]


def _layout_by_distance(graph: nx.Graph) -> np.ndarray:
    """Place agents at distances close to their hop counts, weighting near pairs most.

    Minimizes sum_{i<j} (||x_i - x_j|| - d_ij)^2 / d_ij^2, as Kamada and Kawai do, by majorization
    (Gansner, Koren and North, 2004), which avoids the slow import of an optimizer.
    """
    hops = np.array(nx.floyd_warshall_numpy(graph))
    weights = 1 / np.where(hops, hops, np.inf) ** 2
    inverse = np.linalg.pinv(np.diag(weights.sum(1)) - weights)
    points = np.array(list(nx.circular_layout(graph).values()), float) * hops.max() / 2
    for _ in range(ITERATIONS):
        distances = np.linalg.norm(points[:, None] - points[None], axis=-1)
        forces = weights * hops / np.where(distances, distances, np.inf)
        points = inverse @ (np.diag(forces.sum(1)) - forces) @ points
    return points / np.abs(points).max()
