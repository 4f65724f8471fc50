"""Paths on which the neighbours of a site can compare its messages, without that site.

Neighbours of a site that lies can compare its signed statements directly if they are neighbours of
each other, otherwise over sites between them. A statement travels at most `MAX_HOPS` edges.
"""

from collections.abc import Mapping, Sequence

import networkx as nx

MAX_HOPS = 4
Neighbours = Mapping[int, Sequence[int]] | Sequence[Sequence[int]]


def distances_without(neighbours: Neighbours, site: int, start: int) -> dict[int, int]:
    """Return the edges, at most `MAX_HOPS`, from `start` to others on paths without `site`."""
    distances, frontier = {start: 0}, {start}
    for hops in range(1, MAX_HOPS + 1):
        frontier = {k for j in frontier for k in neighbours[j] if k != site} - distances.keys()
        distances |= dict.fromkeys(frontier, hops)
    return distances


def comparison_hops(neighbours: Neighbours, site: int) -> int | None:
    """Return the smallest number of hops with which all neighbours of `site` are compared.

    Each neighbour compares with those within that distance, and these with others in turn: two
    neighbours with different messages are then found at some edge of the chain. None if more than
    `MAX_HOPS` are needed, or if there is only one neighbour.
    """
    others = sorted(neighbours[site])
    if len(others) < 2:
        return None
    distances = {j: distances_without(neighbours, site, j) for j in others}
    for hops in range(1, MAX_HOPS + 1):
        is_near = lambda j, k, hops=hops: distances[j].get(k, MAX_HOPS + 1) <= hops
        if nx.is_connected(nx.Graph((j, k) for j in others for k in others if is_near(j, k))):
            return hops
    return None


def describe_comparison(neighbours: Neighbours, names: Sequence[str]) -> str:
    """Describe whose different messages to different neighbours signatures can prove."""
    hops = {i: comparison_hops(neighbours, i) for i in range(len(neighbours))}
    beyond = [names[i] for i, h in hops.items() if h is None and len(neighbours[i]) > 1]
    if not beyond:
        return (
            "signed messages: a site that tells its neighbours different things is found within "
            f"{max((h for h in hops.values() if h), default=0)} exchanges"
        )
    return (
        f"signed messages: the neighbours of {', '.join(beyond)} have no path of at most "
        f"{MAX_HOPS} edges between them without that site, so that they cannot all compare its "
        f"messages: add edges between its neighbours"
    )
