"""Rounds of a constant network in which links are down: local steps, late agents."""

from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import reduce
from typing import TYPE_CHECKING

import networkx as nx
import numpy as np
from scipy.sparse import csr_array

from diamond.core.exclusions import check_combination
from diamond.core.validation import as_int

if TYPE_CHECKING:
    from diamond.network.communication_network import Network


def exchange_every(network: "Network", rounds: int) -> "Network":
    """Return `network` with an exchange in rounds `rounds` - 1, 2 `rounds` - 1, ... only."""
    if as_int("exchange_every", rounds, 1) == 1:
        return network
    check_combination(network.features | {"exchange_every": True}, network.name)
    idle = _without_links(network, network.edges)
    sequence = (idle,) * (rounds - 1) + (replace(network, links=None),)
    return _interrupt(network, sequence, f"{network.name} every {rounds} rounds")


def interrupted(
    network: "Network",
    down: Sequence[Collection[tuple[int, int]]],
    skipping: Sequence[Collection[int]] = (),
) -> "Network":
    """Return a symmetric network with links that are down, and agents that skip rounds.

    The weight of a link that is down moves to the diagonal at both ends. An agent that skips a
    round changes nothing in it: neither x, y nor its tracker; its links are down then.

    Args:
        network: constant, undirected network.
        down: links (i, j) that are down, i < j, for round 0, 1, ..., repeated after the last.
        skipping: agents that skip the round, for the same rounds; none: nobody skips.
    """
    check_combination(network.features | {"given interruptions": True}, network.name)
    skips = [frozenset(agents) for agents in skipping] or [frozenset()] * len(down)
    if not down or len(skips) != len(down):
        raise ValueError(f"{len(down)} rounds of links and {len(skips)} of agents; give as many")
    phases: dict[tuple[frozenset[tuple[int, int]], frozenset[int]], Network] = {}
    sequence = []
    for t, (links, agents) in enumerate(zip(down, skips)):
        key = frozenset(links), agents
        if unknown := key[0] - {*network.edges}:
            raise ValueError(f"round {t}: {network.name} has no link {min(unknown)}")
        if up := [e for e in network.edges if e not in key[0] and agents & {*e}]:
            raise ValueError(
                f"round {t}: link {up[0]} is up, and one of its agents skips the round"
            )
        if key not in phases:
            phases[key] = replace(_without_links(network, sorted(key[0])), skipping=agents)
        sequence.append(phases[key])
    return _interrupt(network, tuple(sequence), f"{network.name} in {len(down)} rounds")


def _interrupt(network: "Network", sequence: tuple["Network", ...], name: str) -> "Network":
    """Return the network that uses `sequence`, rounds of `network` without some of its links."""
    mean = lambda matrices: csr_array(reduce(lambda a, b: a + b, matrices) / len(sequence))
    weights = mean([phase.weights for phase in sequence])
    shares = None if network.shares is None else mean([phase.shares for phase in sequence])
    fields = {"weights": weights, "shares": shares, "name": name, "sequence": sequence}
    return replace(network, **fields, base=network)


def _without_links(network: "Network", down: Sequence[tuple[int, int]]) -> "Network":
    """Return the network of a round in which these links are down."""
    graph = (nx.DiGraph if network.graph.is_directed() else nx.Graph)(network.graph)
    graph.remove_edges_from(down)
    if len(down) == len(network.edges):
        weights = csr_array(np.eye(network.agents))
    else:
        matrix = network.matrix
        for i, j in down:
            for a, b in ((i, j), (j, i)):
                matrix[a, a] += matrix[a, b]
                matrix[a, b] = 0.0
        weights = csr_array(matrix)
    shares = None if network.shares is None else weights
    fields = {"weights": weights, "shares": shares, "links": None, "name": "graph"}
    return replace(network, graph=nx.freeze(graph), **fields)
