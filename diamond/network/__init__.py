"""Networks: graphs of agents, mixing weights, links and channels."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from diamond.network.communication_network import Network
from diamond.network.directed import directed, one_way_ring, random_digraph
from diamond.network.graphs import (
    complete,
    erdos_renyi,
    exponential,
    from_edges,
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
from diamond.network.link_interruptions import interrupted
from diamond.network.time_varying import changing, matchings, one_peer
from diamond.network.wireless import wireless

if TYPE_CHECKING:
    from diamond.network import channels as channels

__all__ = [
    "Network",
    "changing",
    "complete",
    "directed",
    "erdos_renyi",
    "exponential",
    "from_edges",
    "from_graph",
    "geometric",
    "grid",
    "hypercube",
    "interrupted",
    "matchings",
    "one_peer",
    "one_way_ring",
    "path",
    "random_digraph",
    "regular",
    "ring",
    "star",
    "torus",
    "wireless",
]


def __getattr__(name: str) -> Any:
    """Import `channels` on first access: graphs need no JAX."""
    if name != "channels":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return import_module("diamond.network.channels")
