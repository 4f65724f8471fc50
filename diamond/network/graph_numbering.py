"""Graphs of agents 0..m-1, from graphs with other nodes or from lists of edges."""

from collections.abc import Hashable, Sequence
from typing import TypeAlias

import networkx as nx
from scipy.sparse import csr_array

from diamond.core.suggestions import did_you_mean
from diamond.network.mixing_weights import Matrix, mixing_matrix

Mixing: TypeAlias = str | Matrix


def number_agents(
    graph: nx.Graph, labels: Sequence[Hashable], mixing: Mixing
) -> tuple[nx.Graph, csr_array, str]:
    """Number the nodes in the order of `labels`; return the graph, its weights and their rule."""
    number = {label: i for i, label in enumerate(labels)}
    components = [set(part) for part in nx.connected_components(graph)]
    if len(components) > 1:
        smallest = min(components, key=len)
        part = sorted(smallest, key=number.__getitem__)
        shown = ", ".join(map(repr, part[:5])) + (", ..." if len(part) > 5 else "")
        raise ValueError(
            f"the graph has {len(components)} components, one of them {{{shown}}}; "
            "add edges between them, or take one component"
        )
    numbered = nx.Graph()
    numbered.graph.update(graph.graph)
    numbered.add_nodes_from((number[label], graph.nodes[label]) for label in labels)
    numbered.add_edges_from((number[a], number[b], data) for a, b, data in graph.edges(data=True))
    weights, rule = mixing_matrix(numbered, mixing)
    # Freeze the graph, because the weights belong to these edges.
    return nx.freeze(numbered), weights, rule


def graph_of_edges(
    edges: Sequence[Sequence[int | str]], agents: int | Sequence[str] | None
) -> tuple[nx.Graph, tuple[int | str, ...]]:
    """Return the graph of listed edges, and its agents in order."""
    pairs = [tuple(edge) for edge in edges]
    for pair in pairs:
        if len(pair) != 2 or pair[0] == pair[1]:
            raise ValueError(f"edges: {list(pair)} is no pair of two agents; name both ends")
    ends = list(dict.fromkeys(end for pair in pairs for end in pair))
    kinds = {type(end) for end in ends}
    if isinstance(agents, int) and agents > len(ends):
        raise ValueError(f"agents = {agents}, but the edges join {len(ends)}; join all agents")
    if kinds - {int, str} or len(kinds) != 1:
        raise ValueError("edges: give every agent by its number, or every agent by its name")
    if kinds == {str}:
        if isinstance(agents, int):
            raise ValueError(f"agents = {agents}, but the edges have names; list the names")
        labels: tuple[int | str, ...] = tuple(ends if agents is None else agents)
    else:
        if not isinstance(agents, int | None):
            raise ValueError("agents are names, but the edges have numbers; give names to both")
        labels = tuple(range(len(ends) if agents is None else agents))
    if unknown := [end for end in ends if end not in labels]:
        suggestion = did_you_mean(unknown[0], [*map(str, labels)])
        raise ValueError(f"edges: no agent {unknown[0]!r}; {suggestion}")
    graph = nx.Graph()
    graph.add_nodes_from(labels)
    graph.add_edges_from(pairs)
    return graph, labels
