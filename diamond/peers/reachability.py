"""Reachability: every edge needs an end that accepts connections, or a relay."""

from collections.abc import Mapping, Sequence

from ..network import Network


def neighbours_of(network: Network, i: int) -> tuple[int, ...]:
    """Return the neighbours of agent i."""
    row: Sequence[int] = network.weights[[i]].indices
    return tuple(int(j) for j in row if j != i)


def all_neighbours(network: Network) -> list[tuple[int, ...]]:
    """Return the neighbours of every agent."""
    return [neighbours_of(network, i) for i in range(network.agents)]


def reachability_mistakes(
    sites: Mapping[str, str], network: Network, relays: Mapping[str, str]
) -> list[str]:
    """Describe relays that do not listen, and edges that no end can dial, with the remedy."""
    mistakes = [
        f"{name} is to relay, so it needs an address at which it listens, the one in [sites]"
        for name, address in relays.items()
        if not address or sites.get(name, address) != address
    ]
    names = list(sites)
    edges = [(a, names[j]) for i, a in enumerate(names) for j in neighbours_of(network, i) if i < j]
    unreachable = [(a, b) for a, b in edges if not (sites[a] or sites[b])]
    if unreachable and not relays:
        mistakes.append(
            f"{', '.join(f'{a} - {b}' for a, b in unreachable)}: neither end accepts connections; "
            f"give one end an address, or name a relay: relay = true for a site with an address, "
            f"or [relays] with that of a `diamond net relay`"
        )
    return mistakes
