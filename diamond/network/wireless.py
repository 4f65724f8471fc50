"""Wireless networks: radios in the plane, with rate and loss by distance."""

import math
from collections.abc import Sequence

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from ..core.validation import as_int
from .communication_network import Network
from .graph_numbering import Mixing
from .graphs import _make_network, _random_network

Positions = Sequence[Sequence[float]]


def wireless(
    agents: int | None = None,
    radius: float = 0.4,
    seed: int = 0,
    mixing: Mixing = "laplacian",
    *,
    connected: bool = True,
    positions: Positions | None = None,
    bandwidth: float = 1e6,
    snr: float = 30.0,
    reference: float = 0.1,
    exponent: float = 3.0,
    threshold: float = 0.0,
) -> Network:
    """Make a network of radios in the plane, joined if closer than `radius`.

        SNR(d) = 10^(snr / 10) (max(d, reference) / reference)^-exponent
        rate   = bandwidth log2(1 + SNR(d))                    Shannon's, in bit/s
        loss   = 1 - exp(-10^(threshold / 10) / SNR(d))        Rayleigh fading

    Latency, turns and computing come from `with_links`, which keeps rate and loss:
    wireless(20).with_links(latency=0.005, shared_medium=True).

    Args:
        agents: number of radios at random positions in the unit square.
        radius: range of a radio, in the unit of the positions.
        seed: seed of the positions.
        mixing: rule of the mixing weights.
        connected: redraw the positions until the graph is connected.
        positions: one (x, y) per agent instead of random ones.
        bandwidth: in Hz.
        snr: mean signal-to-noise ratio at the distance `reference`, in decibels.
        reference: distance of `snr`.
        exponent: path loss exponent (2 in free space, 3 to 4 in buildings and cities).
        threshold: SNR in decibels below which a packet is lost.

    Returns:
        The network; the positions are the node attribute "pos" of `Network.graph`.
    """
    if not (np.isfinite(radius) and radius > 0):
        raise ValueError(f"radius is {radius}; it must be a positive distance, such as 0.4")
    for name, value in (("bandwidth", bandwidth), ("reference", reference), ("exponent", exponent)):
        if not (math.isfinite(value) and value > 0):
            raise ValueError(f"{name} is {value}; it must be above 0")
    for name, value in (("snr", snr), ("threshold", threshold)):
        if not math.isfinite(value):
            raise ValueError(f"{name} is {value}; it must be a finite number of decibels")
    if positions is not None:
        points = _check_positions(positions, agents)
        name = f"wireless({len(points)} places, radius={radius})"
        network = _make_network(_disc_graph(points, radius), range(len(points)), name, mixing)
    elif agents is not None:
        count = as_int("agents", agents, 1)
        name = f"wireless({count}, radius={radius}, seed={seed})"
        draw_position = lambda generator: (generator.random(), generator.random())
        draw_graph = lambda generator: _disc_graph(
            np.array([draw_position(generator) for _ in range(count)]), radius
        )
        network = _random_network(
            draw_graph, name, seed, mixing, connected=connected, parameter="radius"
        )
    else:
        raise ValueError("wireless needs agents, how many, or positions, where they are")
    coordinates = np.array([point for _, point in network.graph.nodes(data="pos")])
    ends = np.array(network.edges, int).reshape(-1, 2)
    distances = np.linalg.norm(coordinates[ends[:, 0]] - coordinates[ends[:, 1]], axis=1)
    ratio = 10 ** (snr / 10) * (np.maximum(distances, reference) / reference) ** -exponent
    return network.with_links(
        rate=bandwidth * np.log2(1 + ratio), loss=-np.expm1(-(10 ** (threshold / 10)) / ratio)
    )


def _check_positions(positions: Positions, agents: int | None) -> NDArray[np.float64]:
    """Return the positions of the agents, (agents, 2)."""
    try:
        if hasattr(positions, "detach"):  # a tensor of PyTorch
            positions = positions.detach().cpu().numpy()
        points = np.array(positions, float)
    except (TypeError, ValueError):
        points = np.empty(0)
    if points.ndim != 2 or points.shape[1] != 2 or not len(points) or not np.isfinite(points).all():
        raise ValueError("positions must be one pair (x, y) of finite numbers for each agent")
    if agents is not None and agents != len(points):
        raise ValueError(f"there are {len(points)} positions for {agents} agents; give one each")
    return points


def _disc_graph(points: NDArray[np.float64], radius: float) -> nx.Graph:
    """Return the graph that joins points closer than `radius`."""
    graph = nx.Graph()
    graph.add_nodes_from((i, {"pos": tuple(map(float, point))}) for i, point in enumerate(points))
    distances = np.linalg.norm(points[:, None] - points[None], axis=-1)
    pairs = np.argwhere(np.triu(distances < radius, 1))
    graph.add_edges_from(map(tuple, pairs.tolist()))
    return graph
