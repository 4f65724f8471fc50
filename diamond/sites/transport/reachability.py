"""Reachability: names and addresses of sites, and an end of every edge that can be dialed."""

from collections.abc import Mapping, Sequence

from ...network import Network

# Files beside the folders of the sites (`certificate_authority`, `roster`).
FILES = ("ca.key", "ca.key.tmp", "ca.pem", "roster.json", "roster.sig", "roster.accepted")
MAX_NAME = 100  # characters


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
    """Describe names and addresses that cannot be used, and edges that no end can dial."""
    mistakes = _naming_mistakes(sites, relays)
    mistakes += [
        f"{name} is to relay, so it needs an address at which it listens, the one in [sites]"
        for name, address in relays.items()
        if not address or sites.get(name, address) != address
    ]
    if network.agents != len(sites):
        return [*mistakes, f"{len(sites)} are listed, the network has {network.agents} agents"]
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


def _naming_mistakes(sites: Mapping[str, str], relays: Mapping[str, str]) -> list[str]:
    """Describe names that are no names of folders, and ports that do not exist."""
    addresses, mistakes = {**sites, **relays}, []
    folders: dict[str, str] = {}  # as file systems compare names
    for name, address in addresses.items():
        if name.lower() in FILES:
            mistakes.append(f"{name} is a file in the federation's folder; choose another name")
        if len(name) > MAX_NAME:
            mistakes.append(f"{name[:20]}... has {len(name)} characters; {MAX_NAME} are the most")
        other = folders.setdefault(name.lower(), name)
        if other != name:
            mistakes.append(f"{other} and {name} are one folder on some machines; rename one")
        if address and not 0 < int(address.rpartition(":")[2]) < 2**16:
            mistakes.append(f"{name}: {address} has no port between 1 and {2**16 - 1}")
    return mistakes
