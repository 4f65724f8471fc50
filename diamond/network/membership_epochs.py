"""Networks whose agents join and leave: a sequence of epochs, each with members and a network."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from diamond.core.exclusions import check_combination

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


def map_epochs(network: "Network", change: Callable[["Network"], "Network"]) -> "Network":
    """Return a network whose members change, with each of its networks changed."""
    epochs = tuple(epoch._replace(network=change(epoch.network)) for epoch in network.epochs)
    check_epochs(epochs)
    first, name = epochs[0].network, epochs_name(epochs)
    defense, mask_limit = first.defense, first.mask_limit
    return replace(network, name=name, epochs=epochs, defense=defense, mask_limit=mask_limit)


def epochs_name(epochs: Sequence[Epoch]) -> str:
    """Return the name of the network of these epochs."""
    parts = (f"{epoch.network.name} from round {epoch.from_round}" for epoch in epochs)
    return f"changing({', '.join(parts)})"


def check_epochs(epochs: Sequence[Epoch]) -> None:
    """Refuse epochs that do not follow one another, as `check_epoch`, or that mix in other ways."""
    for before, epoch in zip([epochs[0], *epochs], epochs):
        check_epoch(epoch, before.members)
        kinds = [(e.network.defense, e.network.mask_limit) for e in (before, epoch)]
        if kinds[0] != kinds[1]:
            raise ValueError(
                f"round {epoch.from_round}: {epoch.network.name} has other robust mixing or masks "
                f"than the network before; both stay the same in a run"
            )


def check_epoch(epoch: Epoch, before: Sequence[int]) -> None:
    """Refuse members that do not fit those `before`, and networks that cannot change."""
    t, network, members = epoch
    if len(members) != network.agents or list(members) != sorted({*members}):
        raise ValueError(
            f"round {t}: {network.name} has {network.agents} agents, and the members are "
            f"{list(members)}; give as many, in increasing order"
        )
    used = network.features | {"changing members": True, "nested members": bool(network.epochs)}
    check_combination(used, f"round {t}: {network.name}")
    if not {*members} & {*before}:
        raise ValueError(f"round {t}: no agent stays; at least one must")


def epoch_ends(network: "Network", rounds: int) -> Iterator[tuple[Epoch, int]]:
    """Yield the epochs of a run of `rounds` rounds, each with its last round."""
    epochs = network.epochs
    ends = [*(epoch.from_round for epoch in epochs[1:]), rounds]
    for epoch, end in zip(epochs, ends):
        if epoch.from_round < rounds or epoch is epochs[0]:
            yield epoch, min(end, rounds)
