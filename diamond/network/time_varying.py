"""Networks that change from round to round."""

from collections.abc import Callable, Sequence
from functools import reduce
from typing import TypeAlias

import networkx as nx
import numpy as np
from scipy.sparse import csr_array

from diamond.core.validation import as_int
from diamond.network.communication_network import Network
from diamond.network.directed import one_way
from diamond.network.mixing_weights import mixing_matrix

One: TypeAlias = "Network | nx.Graph"


def changing(
    networks: Sequence[One] | Callable[[int], One],
    period: int | None = None,
    mixing: str = "metropolis",
) -> Network:
    """Use the given networks in turn, one per round, periodically.

    Args:
        networks: networks or networkx graphs, directed or not; or a function of the round. Only
            their union must be connected.
        period: number of rounds for which a function is called, 0 to `period` - 1.
        mixing: mixing rule for undirected graphs; directed graphs get even weights.

    Returns:
        The changing network.
    """
    if callable(networks):
        if period is None:
            raise ValueError("a function of the round needs period: after how many to begin again")
        given = [networks(t) for t in range(as_int("period", period, 1))]
    else:
        given = list(networks)
    if not given:
        raise ValueError("networks is empty; give at least one")
    each = tuple(_one(given_one, mixing) for given_one in given)
    return _in_turn(each, f"changing({len(each)} networks)")


def one_peer(agents: int) -> Network:
    """One-peer exponential graphs (Ying et al., 2021): in round t, i hears only i - 2^(t mod k).

    With m = 2^k agents, consensus is exact after k rounds, as fast as all-to-all communication.
    """
    agents = as_int("agents", agents, 1)
    hops = [2**k for k in range(max(1, (agents - 1).bit_length()))]
    each = []
    for hop in hops:
        graph = nx.DiGraph()
        graph.add_nodes_from(range(agents))
        graph.add_edges_from((i, (i + hop) % agents) for i in range(agents) if hop % agents)
        each.append(one_way(graph, "one_peer", connected=False))
    return _in_turn(tuple(each), f"one_peer({agents})")


def matchings(agents: int, period: int = 64, seed: int = 0) -> Network:
    """Pair up agents at random in every round; both agents of a pair take their mean.

    With an odd number of agents, one stays alone. `period` rounds are drawn and then repeated.
    """
    agents, period = as_int("agents", agents, 1), as_int("period", period, 1)
    source = np.random.default_rng(as_int("seed", seed))
    each = []
    for _ in range(period):
        order = source.permutation(agents)
        graph = nx.empty_graph(agents)
        graph.add_edges_from(map(tuple, order[: agents - agents % 2].reshape(-1, 2).tolist()))
        each.append(_one(graph, "metropolis"))
    return _in_turn(tuple(each), f"matchings({agents}, period={period}, seed={seed})")


def _one(given: One, mixing: str) -> Network:
    """Return the network of one round, which need not be connected."""
    if isinstance(given, Network):
        if given.sequence:
            raise ValueError(f"{given.name} changes itself; give its networks one by one")
        return given
    if not isinstance(given, nx.Graph):
        raise TypeError(f"{given!r} is neither a network nor a networkx graph")
    if given.is_directed():
        return one_way(given, "directed", connected=False)
    labels = tuple(given)
    numbered = nx.relabel_nodes(given, {a: i for i, a in enumerate(labels)}, copy=True)
    if numbered.number_of_edges() == 0:  # nobody communicates
        weights, rule = csr_array(np.eye(len(labels))), mixing
    else:
        weights, rule = mixing_matrix(numbered, mixing)
    return Network(nx.freeze(numbered), weights, "graph", rule, labels)


def _in_turn(each: tuple[Network, ...], name: str) -> Network:
    first = each[0]
    for t, one in enumerate(each):
        if one.agents != first.agents:
            raise ValueError(
                f"the network of round {t} has {one.agents} agents, that of round 0 "
                f"{first.agents}; all must have the same"
            )
    one_sided = any(one.graph.is_directed() for one in each)
    union = nx.DiGraph() if one_sided else nx.Graph()
    union.add_nodes_from(range(first.agents))
    for one in each:
        ways = one.graph.edges if one.graph.is_directed() else one.graph.to_directed().edges
        union.add_edges_from(ways)
    parts = list(
        nx.strongly_connected_components(union) if one_sided else nx.connected_components(union)
    )
    if len(parts) > 1:
        part = sorted(sorted(parts, key=len)[0])
        shown = ", ".join(map(str, part[:5])) + (", ..." if len(part) > 5 else "")
        raise ValueError(
            f"over {len(each)} round{'s' * (len(each) != 1)} the links do not connect "
            f"{{{shown}}} with all others{' both ways' * one_sided}; add links, or more rounds"
        )
    mean = lambda matrices: csr_array(reduce(lambda a, b: a + b, matrices) / len(each))
    weights = mean([one.weights for one in each])
    shares = None
    if any(one.shares is not None for one in each):
        shares = mean([one.weights if one.shares is None else one.shares for one in each])
    rules = dict.fromkeys(one.mixing for one in each)
    mixing = next(iter(rules)) if len(rules) == 1 else "mixed"
    fixed = nx.freeze(union), weights, name, mixing, first.labels, 1, shares
    found = Network(*fixed, sequence=each)
    still = any((one.weights.diagonal() == 0).any() for one in each)
    if still and found.agents > 1 and found.lam > 1 - 1e-9:
        raise ValueError(
            f"{name} has lam = 1: agents without a weight of their own swap values for ever; give "
            "every agent a weight M_ii > 0"
        )
    return found
