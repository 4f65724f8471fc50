"""Constructors of networks: standard graphs, and any networkx graph."""

import random
from collections.abc import Callable, Hashable, Iterable, Sequence

import networkx as nx

from diamond.core.validation import as_int
from diamond.network.communication_network import Network
from diamond.network.graph_numbering import Mixing, number_agents

MOST_DRAWS = 1000


def erdos_renyi(
    agents: int,
    p: float = 0.3,
    seed: int = 0,
    mixing: Mixing = "laplacian",
    *,
    connected: bool = True,
) -> Network:
    """Make an Erdos-Renyi graph: each pair is joined with probability p, independently.

    With few agents a draw is often disconnected (9 agents, p = 0.3: 41 %); the graph is then drawn
    again from the same generator.

    Args:
        agents: number of agents.
        p: probability of an edge.
        seed: seed of the graph.
        mixing: rule of the mixing weights ("laplacian", "metropolis", "max_degree",
            "best_constant"), or a matrix.
        connected: redraw until connected; `Network.draws` counts the draws.
    """
    agents = as_int("agents", agents, 1)
    if not 0 <= p <= 1:
        raise ValueError(f"p is {p}; an edge probability lies between 0 and 1")
    name = f"erdos_renyi({agents}, p={p}, seed={seed})"
    draw = lambda generator: nx.fast_gnp_random_graph(agents, p, seed=generator)
    return _random_network(draw, name, seed, mixing, connected=connected, parameter="p")


def regular(
    agents: int,
    degree: int,
    seed: int = 0,
    mixing: Mixing = "laplacian",
    *,
    connected: bool = True,
) -> Network:
    """Make a random graph with `degree` neighbours per agent; options as in `erdos_renyi`."""
    agents, degree = as_int("agents", agents, 1), as_int("degree", degree, 0)
    if degree >= agents:
        raise ValueError(
            f"degree is {degree}, but {agents} agents have at most {agents - 1} neighbours each; "
            "lower degree or raise agents"
        )
    if degree * agents % 2:
        raise ValueError(
            f"no graph has {agents} agents of degree {degree}: their product is odd; "
            "make one of them even"
        )
    name = f"regular({agents}, degree={degree}, seed={seed})"
    draw = lambda generator: nx.random_regular_graph(degree, agents, seed=generator)
    return _random_network(draw, name, seed, mixing, connected=connected, parameter="degree")


def geometric(
    agents: int,
    radius: float,
    seed: int = 0,
    mixing: Mixing = "laplacian",
    *,
    connected: bool = True,
) -> Network:
    """Make a random geometric graph: agents in the unit square, joined if closer than `radius`.

    The positions are the node attribute "pos" of `Network.graph`. Options as in `erdos_renyi`.
    """
    agents = as_int("agents", agents, 1)
    if not radius > 0:
        raise ValueError(f"radius is {radius}; it must be a positive distance, such as 0.5")
    name = f"geometric({agents}, radius={radius}, seed={seed})"
    draw = lambda generator: nx.random_geometric_graph(agents, radius, seed=generator)
    return _random_network(draw, name, seed, mixing, connected=connected, parameter="radius")


def ring(agents: int, mixing: Mixing = "laplacian") -> Network:
    """Make a ring: agent i is joined with i + 1 modulo m; two agents share a single edge."""
    agents = as_int("agents", agents, 1)
    graph = nx.cycle_graph(agents) if agents > 1 else nx.empty_graph(1)
    return _make_network(graph, range(agents), f"ring({agents})", mixing)


def path(agents: int, mixing: Mixing = "laplacian") -> Network:
    """Make a line: agent i is joined with i + 1."""
    agents = as_int("agents", agents, 1)
    return _make_network(nx.path_graph(agents), range(agents), f"path({agents})", mixing)


def star(agents: int, mixing: Mixing = "laplacian") -> Network:
    """Make a star: agent 0 is joined with all others."""
    agents = as_int("agents", agents, 1)
    return _make_network(nx.star_graph(agents - 1), range(agents), f"star({agents})", mixing)


def complete(agents: int, mixing: Mixing = "laplacian") -> Network:
    """Make a complete graph: all pairs are joined."""
    agents = as_int("agents", agents, 1)
    return _make_network(nx.complete_graph(agents), range(agents), f"complete({agents})", mixing)


def grid(rows: int, columns: int, mixing: Mixing = "laplacian") -> Network:
    """Make a grid, numbered row by row; `labels` holds (row, column)."""
    rows, columns = as_int("rows", rows, 1), as_int("columns", columns, 1)
    graph = nx.grid_2d_graph(rows, columns)
    return _make_network(graph, sorted(graph), f"grid({rows}, {columns})", mixing)


def torus(rows: int, columns: int, mixing: Mixing = "laplacian") -> Network:
    """Make a grid whose opposite sides are joined; a side of 2 keeps its single edge."""
    rows, columns = as_int("rows", rows, 1), as_int("columns", columns, 1)
    graph = nx.grid_2d_graph(rows, columns, periodic=True)
    return _make_network(graph, sorted(graph), f"torus({rows}, {columns})", mixing)


def hypercube(dimension: int, mixing: Mixing = "laplacian") -> Network:
    """Make a hypercube of 2^dimension agents, joined if their binary digits differ in one place."""
    dimension = as_int("dimension", dimension, 0)
    # networkx needs dimension >= 1; dimension 0 means a single agent.
    graph = nx.hypercube_graph(dimension) if dimension else nx.empty_graph(1)
    return _make_network(graph, sorted(graph), f"hypercube({dimension})", mixing)


def exponential(agents: int, mixing: Mixing = "laplacian") -> Network:
    """Make the static exponential graph: i is joined with i + 2^k modulo m for all 2^k < m."""
    agents = as_int("agents", agents, 1)
    hops = [2**k for k in range((agents - 1).bit_length())]
    graph = nx.circulant_graph(agents, hops)
    return _make_network(graph, range(agents), f"exponential({agents})", mixing)


def from_graph(graph: nx.Graph, mixing: Mixing = "laplacian") -> Network:
    """Make a network of any undirected connected networkx graph.

    The nodes become agents 0..m-1 in their order; `labels` holds the node names.
    """
    if not isinstance(graph, nx.Graph):
        raise TypeError(f"from_graph takes a networkx graph, and was given {type(graph).__name__}")
    if graph.is_directed():
        raise ValueError("the graph is directed; agents need both ways: pass graph.to_undirected()")
    if graph.is_multigraph():
        raise ValueError("the graph has parallel edges (a multigraph); pass networkx.Graph(graph)")
    if len(graph) == 0:
        raise ValueError("the graph has no nodes; a network needs at least one agent")
    if loops := list(nx.nodes_with_selfloops(graph)):
        raise ValueError(
            f"the graph joins {loops[0]!r} with itself; remove self-loops, since the mixing rule "
            "gives every agent its own weight"
        )
    name = f"from_graph({graph.name})" if graph.name else "from_graph"
    return _make_network(graph, list(graph), name, mixing)


def from_edges(
    edges: Sequence[Sequence[int | str]],
    agents: int | Sequence[str] | None = None,
    mixing: Mixing = "laplacian",
) -> Network:
    """Make a network of listed edges.

    Args:
        edges: pairs of agents, by number as in [[0, 1], [1, 2]], or by name as in [["north",
            "south"]].
        agents: number of the agents, or their names in their order; by default those of the edges,
            names in the order in which they occur.
        mixing: rule of the mixing weights, or a matrix.

    Returns:
        The network; `labels` holds the names.
    """
    return Network.from_edges(edges, agents, mixing)


def _make_network(
    graph: nx.Graph, labels: Iterable[Hashable], name: str, mixing: Mixing, *, draws: int = 1
) -> Network:
    """Number the nodes in the order of `labels`, and compute the weights."""
    labels = tuple(labels)
    numbered, weights, rule = number_agents(graph, labels, mixing)
    return Network(numbered, weights, name, rule, labels, draws)


def _random_network(
    generate: Callable[[random.Random], nx.Graph],
    name: str,
    seed: int,
    mixing: Mixing,
    *,
    connected: bool,
    parameter: str,
) -> Network:
    """Draw until the graph is connected, always from the one generator of `seed`."""
    generator = random.Random(as_int("seed", seed, 0))
    for draws in range(1, MOST_DRAWS + 1):
        graph = generate(generator)
        components = nx.number_connected_components(graph)
        if components == 1:
            return _make_network(graph, sorted(graph), name, mixing, draws=draws)
        if not connected:
            raise ValueError(
                f"the graph with seed {seed} has {components} components; "
                f"pass connected=True to redraw, or raise {parameter}"
            )
    raise ValueError(f"none of {MOST_DRAWS} draws of {name} was connected; raise {parameter}")
