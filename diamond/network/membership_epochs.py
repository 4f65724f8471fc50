"""Networks whose agents join and leave: a sequence of epochs, each with members and a network."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from diamond.network.communication_network import Network


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


def check_epoch(epoch: Epoch, before: Sequence[int]) -> None:
    """Refuse members that do not fit those `before`, and networks that cannot change."""
    t, network, members = epoch
    if len(members) != network.agents or list(members) != sorted({*members}):
        raise ValueError(
            f"round {t}: {network.name} has {network.agents} agents, and the members are "
            f"{list(members)}; give as many, in increasing order"
        )
    base = network.base or network
    extras = network.channels, network.defense, network.lies, network.mask_limit
    if base.kind != "symmetric" or any(extras):
        raise ValueError(
            f"round {t}: {network.name} must be undirected and constant, without channels, robust "
            f"mixing and masks, since members change"
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
