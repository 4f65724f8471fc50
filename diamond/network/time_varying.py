"""Networks that change from round to round."""

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import TypeAlias

import networkx as nx
import numpy as np
from scipy.sparse import csr_array

from diamond.core.validation import as_int
from diamond.network.communication_network import Network
from diamond.network.directed import one_way
from diamond.network.membership_epochs import Epoch, check_epochs, epochs_name
from diamond.network.mixing_weights import mixing_matrix

NetworkOrGraph: TypeAlias = "Network | nx.Graph"
Members = Mapping[int, Sequence[int]]


def changing(
    networks: Sequence[NetworkOrGraph] | Callable[[int], NetworkOrGraph] | Mapping[int, Network],
    period: int | None = None,
    mixing: str = "metropolis",
    members: Members | None = None,
) -> Network:
    """Use the given networks in turn, one per round, periodically; or each from a round on.

    Args:
        networks: networks or networkx graphs, directed or not; or a function of the round. Only
            their union must be connected. {0: network, 100: other} uses each from its round on;
            agents may then join and leave (`diamond.engine.membership_run`).
        period: number of rounds for which a function is called, 0 to `period` - 1.
        mixing: mixing rule for undirected graphs; directed graphs get even weights.
        members: for {round: network}, the agents that take part from each round on, as in
            {0: [0, 1, 2], 100: [0, 1, 2, 3]}; by default 0, 1, ...
    """
    if isinstance(networks, Mapping):
        if period is not None:
            raise ValueError("networks by round do not repeat: leave out period")
        return _network_of_epochs(networks, members)
    if members is not None:
        raise ValueError("members change in given rounds: give networks as {0: network, ...}")
    if callable(networks):
        if period is None:
            raise ValueError(
                "a function of the round needs period, the number of rounds after which it repeats"
            )
        entries = [networks(t) for t in range(as_int("period", period, 1))]
    else:
        entries = list(networks)
    if not entries:
        raise ValueError("networks is empty; give at least one")
    phases = tuple(_phase_network(entry, mixing) for entry in entries)
    return _sequence_network(phases, f"changing({len(phases)} networks)")


def one_peer(agents: int) -> Network:
    """One-peer exponential graphs (Ying et al., 2021): in round t, i hears only i - 2^(t mod k).

    With m = 2^k agents, consensus is exact after k rounds, as fast as all-to-all communication.
    """
    agents = as_int("agents", agents, 1)
    hops = [2**k for k in range(max(1, (agents - 1).bit_length()))]
    phases = []
    for hop in hops:
        graph = nx.DiGraph()
        graph.add_nodes_from(range(agents))
        graph.add_edges_from((i, (i + hop) % agents) for i in range(agents) if hop % agents)
        phases.append(one_way(graph, "one_peer", connected=False))
    return _sequence_network(tuple(phases), f"one_peer({agents})")


def matchings(agents: int, period: int = 64, seed: int = 0) -> Network:
    """Pair up agents at random in every round; both agents of a pair take their mean.

    With an odd number of agents, one stays alone. `period` rounds are drawn and then repeated.
    """
    agents, period = as_int("agents", agents, 1), as_int("period", period, 1)
    generator = np.random.default_rng(as_int("seed", seed))
    phases = []
    for _ in range(period):
        order = generator.permutation(agents)
        graph = nx.empty_graph(agents)
        graph.add_edges_from(map(tuple, order[: agents - agents % 2].reshape(-1, 2).tolist()))
        phases.append(_phase_network(graph, "metropolis"))
    return _sequence_network(tuple(phases), f"matchings({agents}, period={period}, seed={seed})")


def _phase_network(entry: NetworkOrGraph, mixing: str) -> Network:
    """Return the network of one round, which need not be connected."""
    if isinstance(entry, Network):
        if entry.sequence:
            raise ValueError(f"{entry.name} changes itself; give its networks one by one")
        return entry
    if not isinstance(entry, nx.Graph):
        raise TypeError(f"{entry!r} is neither a network nor a networkx graph")
    if entry.is_directed():
        return one_way(entry, "directed", connected=False)
    labels = tuple(entry)
    numbered = nx.relabel_nodes(entry, {a: i for i, a in enumerate(labels)}, copy=True)
    if numbered.number_of_edges() == 0:  # nobody communicates
        weights, rule = csr_array(np.eye(len(labels))), mixing
    else:
        weights, rule = mixing_matrix(numbered, mixing)
    return Network(nx.freeze(numbered), weights, "graph", rule, labels)


def _sequence_network(phases: tuple[Network, ...], name: str) -> Network:
    first = phases[0]
    for t, phase in enumerate(phases):
        if phase.agents != first.agents:
            raise ValueError(
                f"the network of round {t} has {phase.agents} agents, that of round 0 "
                f"{first.agents}; all must have the same"
            )
    is_directed = any(phase.graph.is_directed() for phase in phases)
    union = nx.DiGraph() if is_directed else nx.Graph()
    union.add_nodes_from(range(first.agents))
    for phase in phases:
        arcs = phase.graph.edges if phase.graph.is_directed() else phase.graph.to_directed().edges
        union.add_edges_from(arcs)
    parts = list(
        nx.strongly_connected_components(union) if is_directed else nx.connected_components(union)
    )
    if len(parts) > 1:
        part = sorted(sorted(parts, key=len)[0])
        shown = ", ".join(map(str, part[:5])) + (", ..." if len(part) > 5 else "")
        raise ValueError(
            f"over {len(phases)} round{'s' * (len(phases) != 1)} the links do not connect "
            f"{{{shown}}} with all others{' both ways' * is_directed}; add links, or more rounds"
        )
    mean = lambda matrices: csr_array(reduce(lambda a, b: a + b, matrices) / len(phases))
    weights = mean([phase.weights for phase in phases])
    shares = None
    if any(phase.shares is not None for phase in phases):
        shares = mean([phase.weights if phase.shares is None else phase.shares for phase in phases])
    rules = dict.fromkeys(phase.mixing for phase in phases)
    mixing = next(iter(rules)) if len(rules) == 1 else "mixed"
    network = Network(
        nx.freeze(union), weights, name, mixing, first.labels, 1, shares, sequence=phases
    )
    lacks_own_weight = any((phase.weights.diagonal() == 0).any() for phase in phases)
    if lacks_own_weight and network.agents > 1 and network.lam > 1 - 1e-9:
        raise ValueError(
            f"{name} has lam = 1: agents without a weight of their own swap values for ever; give "
            "every agent a weight M_ii > 0"
        )
    return network


def _network_of_epochs(networks: Mapping[int, Network], members: Members | None) -> Network:
    """Return the network of all agents whose members and links change in the given rounds.

    Args:
        networks: the network from each round on; the first round is 0.
        members: for the same rounds, the agents that take part, in increasing order; the first is
            agent 0 of the network of that round. None: agents 0, 1, ...

    Returns:
        The network, for `diamond.simulate`; its graph has the links of all rounds.
    """
    rounds = sorted(as_int("round", t) for t in networks)
    if rounds[:1] != [0]:
        raise ValueError("the first network must be that of round 0: give {0: network, ...}")
    listed = {t: range(networks[t].agents) for t in rounds} if members is None else dict(members)
    if sorted(listed) != rounds:
        raise ValueError(f"members are given for rounds {sorted(listed)}, networks for {rounds}")
    epochs = [Epoch(t, networks[t], tuple(int(i) for i in listed[t])) for t in rounds]
    check_epochs(epochs)
    agents = {i for epoch in epochs for i in epoch.members}
    if agents != {*range(len(agents))}:
        raise ValueError(f"agent {min({*range(len(agents))} - agents)} never takes part")
    union = nx.Graph()
    union.add_nodes_from(range(len(agents)))
    union.add_edges_from(edge for epoch in epochs for edge in epoch.edges)
    weights, rule = mixing_matrix(union, "metropolis")
    labels = tuple(range(len(agents)))
    first = epochs[0].network
    return Network(
        nx.freeze(union),
        weights,
        epochs_name(epochs),
        rule,
        labels,
        epochs=tuple(epochs),
        defense=first.defense,
        mask_limit=first.mask_limit,
    )
