"""Networks whose agents join and leave: a sequence of epochs, each with members and a network."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import networkx as nx

from diamond.core.validation import as_int
from diamond.network.mixing_weights import mixing_matrix

if TYPE_CHECKING:
    from diamond.network.communication_network import Network

Members = Mapping[int, Sequence[int]]


class Epoch(NamedTuple):
    """Rounds from `from_round` on, in which agent `members[i]` is agent i of `network`."""

    from_round: int
    network: "Network"
    members: tuple[int, ...]

    @property
    def edges(self) -> list[tuple[int, int]]:
        """Edges between the numbers of the members."""
        return [(self.members[i], self.members[j]) for i, j in self.network.edges]

    def neighbours(self, agent: int) -> list[int]:
        """Return the neighbours of a member, in order."""
        row = self.network.weights[[self.members.index(agent)]]
        return [self.members[j] for j in row.indices.tolist() if self.members[j] != agent]


def network_of_epochs(networks: Mapping[int, "Network"], members: Members | None) -> "Network":
    """Return the network of all agents whose members and links change in the given rounds.

    Args:
        networks: the network from each round on; the first round is 0.
        members: for the same rounds, the agents that take part, in increasing order; the first is
            agent 0 of the network of that round. None: agents 0, 1, ...

    Returns:
        The network, for `diamond.simulate`; its graph has the links of all rounds.
    """
    from diamond.network.communication_network import Network

    rounds = sorted(as_int("round", t) for t in networks)
    if rounds[:1] != [0]:
        raise ValueError("the first network must be that of round 0: give {0: network, ...}")
    listed = {t: range(networks[t].agents) for t in rounds} if members is None else dict(members)
    if sorted(listed) != rounds:
        raise ValueError(f"members are given for rounds {sorted(listed)}, networks for {rounds}")
    epochs = [Epoch(t, networks[t], tuple(int(i) for i in listed[t])) for t in rounds]
    for before, epoch in zip([epochs[0], *epochs], epochs):
        check_epoch(epoch, before.members)
    agents = {i for epoch in epochs for i in epoch.members}
    if agents != {*range(len(agents))}:
        raise ValueError(f"agent {min({*range(len(agents))} - agents)} never takes part")
    union = nx.Graph()
    union.add_nodes_from(range(len(agents)))
    union.add_edges_from(edge for epoch in epochs for edge in epoch.edges)
    weights, rule = mixing_matrix(union, "metropolis")
    name = f"changing({', '.join(f'{e.network.name} from round {e.from_round}' for e in epochs)})"
    labels = tuple(range(len(agents)))
    return Network(nx.freeze(union), weights, name, rule, labels, epochs=tuple(epochs))


def check_epoch(epoch: Epoch, before: Sequence[int]) -> None:
    """Refuse members that do not fit those `before`, and networks that cannot change."""
    t, network, members = epoch
    if len(members) != network.agents or list(members) != sorted({*members}):
        raise ValueError(
            f"round {t}: {network.name} has {network.agents} agents, and the members are "
            f"{list(members)}; give as many, in increasing order"
        )
    base = network.base or network
    if base.kind != "symmetric" or network.channels or network.defense or network.lies:
        raise ValueError(
            f"round {t}: {network.name} must be undirected and constant, without channels and "
            f"robust mixing, since members change"
        )
    if network.links is not None or network.epochs:
        raise ValueError(f"round {t}: {network.name} has timed links or changes of its own")
    if not {*members} & {*before}:
        raise ValueError(f"round {t}: no agent stays; at least one must")


def check_constant_members(network: "Network") -> None:
    """Refuse a network whose members change, where all agents must take part in every round."""
    if network.epochs:
        raise ValueError(
            f"members of {network.name} change: run it with diamond.simulate on one device, alone"
        )


def epoch_ends(network: "Network", rounds: int) -> Iterator[tuple[Epoch, int]]:
    """Yield the epochs of a run of `rounds` rounds, each with its last round."""
    epochs = network.epochs
    ends = [*(epoch.from_round for epoch in epochs[1:]), rounds]
    for epoch, end in zip(epochs, ends):
        if epoch.from_round < rounds or epoch is epochs[0]:
            yield epoch, min(end, rounds)
