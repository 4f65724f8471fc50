"""Who talks to whom, and with which weights."""

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
from diamond.network.wireless import wireless

__all__ = [
    "Network",
    "complete",
    "erdos_renyi",
    "exponential",
    "from_graph",
    "geometric",
    "grid",
    "hypercube",
    "path",
    "regular",
    "ring",
    "star",
    "torus",
    "wireless",
]
