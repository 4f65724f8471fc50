"""Who talks to whom, and with which weights."""

from diamond.network import channels as channels
from diamond.network.changing import changing, matchings, one_peer
from diamond.network.directed import directed, one_way_ring, random_digraph
from diamond.network.graphs import (
    complete,
    erdos_renyi,
    exponential,
    from_graph,
    geometric,
    grid,
    hypercube,
    path,
    regular,
    ring,
    star,
    torus,
)
from diamond.network.network import Network

__all__ = [
    "Network",
    "changing",
    "complete",
    "directed",
    "erdos_renyi",
    "exponential",
    "from_graph",
    "geometric",
    "grid",
    "hypercube",
    "matchings",
    "one_peer",
    "one_way_ring",
    "path",
    "random_digraph",
    "regular",
    "ring",
    "star",
    "torus",
]
