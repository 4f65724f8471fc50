"""Use of the edges of a network in its rounds: messages and active edges."""

from collections import Counter
from typing import TYPE_CHECKING

from diamond.network.membership_epochs import epoch_ends

if TYPE_CHECKING:
    from diamond.network.communication_network import Network


def count_messages_by_edge(network: "Network", rounds: int) -> dict[tuple[int, int], int]:
    """Count the messages over each edge in `rounds` rounds, one per direction and round."""
    if network.epochs:
        totals = Counter(dict.fromkeys(network.edges, 0))
        for epoch, end in epoch_ends(network, rounds):
            until = count_messages_by_edge(epoch.network, end)
            before = count_messages_by_edge(epoch.network, epoch.from_round)
            for edge, pair in zip(epoch.edges, epoch.network.edges):
                totals[edge] += until[pair] - before[pair]
        return dict(totals)
    if not network.sequence:
        return dict.fromkeys(network.edges, rounds * (1 if network.graph.is_directed() else 2))
    periods, rest = divmod(rounds, len(network.sequence))
    counts = Counter(dict.fromkeys(network.edges, 0))
    for t, phase in enumerate(network.sequence):
        for edge, count in count_messages_by_edge(phase, periods + (t < rest)).items():
            arcs = [edge] if edge in counts else [edge[::-1]]
            if network.graph.is_directed() and not phase.graph.is_directed():
                arcs, count = [edge, edge[::-1]], count // 2
            counts.update(dict.fromkeys(arcs, count))
    return dict(counts)


def count_messages(network: "Network", rounds: int) -> int:
    """Count the messages over all edges in `rounds` rounds, one per agent and neighbor."""
    if network.epochs:
        return sum(count_messages_by_edge(network, rounds).values())
    if not network.sequence:
        ways = 1 if network.graph.is_directed() else 2
        return rounds * ways * int(network.graph.number_of_edges())
    periods, rest = divmod(rounds, len(network.sequence))
    return sum(
        count_messages(phase, periods + (t < rest)) for t, phase in enumerate(network.sequence)
    )


def active_edges(network: "Network") -> list[list[int]] | None:
    """Indices of the active `edges` in rounds 0, 1, ..., for a changing network."""
    number = {edge: k for k, edge in enumerate(network.edges)}
    if not network.sequence:
        return None
    arcs_of_rounds = [phase.graph.to_directed().edges for phase in network.sequence]
    return [sorted({number[edge] for edge in arcs if edge in number}) for arcs in arcs_of_rounds]
