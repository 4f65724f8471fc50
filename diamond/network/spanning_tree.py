"""Spanning trees of a network, along which exact means are summed and distributed."""

import math
from typing import TYPE_CHECKING, NamedTuple

import networkx as nx
import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from diamond.core.exclusions import find_exclusions

if TYPE_CHECKING:
    from diamond.network.communication_network import Network

MAX_ROOTS = 16  # agents that are tried as the root; each takes two searches of the graph
Arcs = list[tuple[int, int]]


class SpanningTree(NamedTuple):
    """Tree towards a root, along which numbers are summed, and one from it, for their total.

    Both are breadth-first trees of the links of all rounds; on undirected links they have the same
    edges. Of several agents that could be the parent, the one with the smallest number is.
    """

    root: int
    up: Arcs  # (child, parent) in the order of additions: children of a parent in increasing order
    down: Arcs  # (parent, child), parents before their children


def make_tree(network: "Network") -> SpanningTree:
    """Return the spanning tree of a network, with a root near the middle of the graph."""
    adjacency = csr_array(network.weights != 0)  # row i: agents that i hears
    hears = nx.from_scipy_sparse_array(adjacency, create_using=nx.DiGraph)
    heard_by = hears.reverse(copy=False)
    root = _find_root(hears, heard_by)
    up = _parents(heard_by, _distances(hears, root), deepest_first=True)
    down = _parents(hears, _distances(heard_by, root), deepest_first=False)
    return SpanningTree(root, up, [(parent, child) for child, parent in down])


def _find_root(hears: nx.DiGraph, heard_by: nx.DiGraph) -> int:
    """Return the agent with the smallest depth of both trees, of at most MAX_ROOTS that are tried.

    depth(v) >= d(s, v) + d(v, s)   for every agent s

    Agents with the smallest and with the largest bound take turns: the former may be the root, the
    latter are far from those before, and raise the bounds of agents at the rim (Takes and Kosters,
    2011).
    """
    bounds, is_open = np.zeros(len(hears)), np.full(len(hears), True)
    best, root = np.inf, 0
    for trial in range(MAX_ROOTS):
        if not is_open.any() or bounds[is_open].min() >= best:
            break
        is_rim = trial % 2 == 1
        agent = int(np.argmin(np.where(is_open, -bounds if is_rim else bounds, np.inf)))
        towards, away = _distances(hears, agent), _distances(heard_by, agent)
        if (depth := towards.max() + away.max()) < best:
            best, root = depth, agent
        bounds, is_open[agent] = np.maximum(bounds, towards + away), False
    return root


def _distances(graph: nx.DiGraph, agent: int) -> NDArray[np.float64]:
    """Return the number of links from an agent to every other one."""
    distances = nx.single_source_shortest_path_length(graph, agent)
    return np.array([distances.get(i, np.inf) for i in range(len(graph))])


def _parents(graph: nx.DiGraph, distances: NDArray[np.float64], deepest_first: bool) -> Arcs:
    """Return (agent, parent) by distance from the root, then by agent.

    The parent is the first neighbor in `graph` that is closer to the root.
    """
    arcs, sign = [], -1 if deepest_first else 1
    for agent in np.lexsort((np.arange(len(distances)), sign * distances)).tolist():
        closer = [j for j in graph[agent] if distances[j] == distances[agent] - 1]
        if closer:
            arcs.append((agent, min(closer)))
    return arcs


def mean_steps(network: "Network", t: int = 0) -> list[Arcs]:
    """Return the messages of an exact mean in round t as (sender, receiver), step by step.

    An agent sends as soon as it has received all that it needs. On a changing network step k has
    the links of round t + k, so that a message may wait for its link.
    """
    phases = [{*zip(*phase.weights.nonzero()[::-1])} for phase in network.phases]
    steps: list[Arcs] = []
    for arcs in network.spanning_tree[1:]:
        waiting = list(arcs)
        while waiting:
            links, incomplete = phases[(t + len(steps)) % len(phases)], {b for _, b in waiting}
            ready = [arc for arc in waiting if arc in links and arc[0] not in incomplete]
            waiting = [arc for arc in waiting if arc not in ready]
            steps.append(ready)
    return steps


def count_mean_messages(network: "Network", means: int) -> dict[tuple[int, int], int]:
    """Count the messages of this many exact means over each edge; lost ones are sent again."""
    counts = dict.fromkeys(network.edges, 0)
    for a, b in (arc for arcs in network.spanning_tree[1:] for arc in arcs):
        counts[(a, b) if (a, b) in counts else (b, a)] += 1
    return {edge: round(means * mean_tries(network) * count) for edge, count in counts.items()}


def mean_tries(network: "Network") -> float:
    """Return the mean number of sends of a message of an exact mean until it arrives."""
    return math.prod(channel.tries or 1 for channel in network.channels)


def exact_mean_obstacle(network: "Network") -> str:
    """Return why agents of the network cannot compute exact means, in a few words, or ""."""
    exclusions = find_exclusions(network.features | {"exact means": True})
    return next((row.reason for row, _ in exclusions), "")
