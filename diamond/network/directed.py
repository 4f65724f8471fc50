"""Networks with one-way links."""

import networkx as nx
import numpy as np
from scipy.sparse import csr_array, sparray, spmatrix

from diamond.core.validation import as_int
from diamond.network.communication_network import Network
from diamond.network.graphs import MOST_DRAWS
from diamond.network.mixing_weights import Matrix, make_read_only


def directed(
    graph: nx.DiGraph, rows: Matrix | None = None, columns: Matrix | None = None
) -> Network:
    """Make a network of any strongly connected networkx digraph; arc j -> i: i hears j.

        averages   s_i <- sum_j R_ij s_j    rows of R sum to 1: weights of the receiver
        totals     s_i <- sum_j C_ij s_j    columns of C sum to 1: how the sender divides

    Args:
        graph: the digraph.
        rows: R; by default i averages evenly over itself and all it hears.
        columns: C; by default j divides evenly among itself and all that hear it.

    Raises:
        ValueError: the graph is not strongly connected, or a matrix does not fit it.
    """
    if not isinstance(graph, nx.Graph) or not graph.is_directed():
        raise TypeError(f"directed takes a networkx.DiGraph, and was given {type(graph).__name__}")
    name = f"directed({graph.name})" if graph.name else "directed"
    return one_way(graph, name, rows, columns)


def one_way_ring(agents: int) -> Network:
    """Make a ring in which agent i hears only i - 1 modulo m."""
    agents = as_int("agents", agents, 1)
    graph = nx.DiGraph()
    graph.add_nodes_from(range(agents))
    graph.add_edges_from((i, (i + 1) % agents) for i in range(agents) if agents > 1)
    return one_way(graph, f"one_way_ring({agents})")


def random_digraph(agents: int, p: float = 0.3, seed: int = 0) -> Network:
    """Let every agent hear every other with probability p, independently.

    The graph is redrawn from the same generator until strongly connected; `draws` counts.
    """
    agents = as_int("agents", agents, 1)
    if not 0 <= p <= 1:
        raise ValueError(f"p is {p}; the probability of an arc lies between 0 and 1")
    generator = np.random.default_rng(as_int("seed", seed))
    name = f"random_digraph({agents}, p={p}, seed={seed})"
    for draws in range(1, MOST_DRAWS + 1):
        receives = (generator.random((agents, agents)) < p) & ~np.eye(agents, dtype=bool)
        graph = nx.from_numpy_array(receives.T, create_using=nx.DiGraph)
        if nx.is_strongly_connected(graph):
            return one_way(graph, name, draws=draws)
    raise ValueError(f"none of {MOST_DRAWS} draws of {name} was strongly connected; raise p")


def one_way(
    graph: nx.DiGraph,
    name: str,
    rows: Matrix | None = None,
    columns: Matrix | None = None,
    draws: int = 1,
    connected: bool = True,
) -> Network:
    """Return the network of `graph`, with nodes numbered in their order."""
    if len(graph) == 0:
        raise ValueError("the graph has no nodes; a network needs at least one agent")
    if graph.is_multigraph():
        raise ValueError("the graph has parallel arcs (a multigraph); pass networkx.DiGraph(graph)")
    if loops := list(nx.nodes_with_selfloops(graph)):
        raise ValueError(
            f"the graph joins {loops[0]!r} with itself; remove self-loops, since every agent has "
            "a weight of its own"
        )
    labels = tuple(graph)
    if connected:
        _check_connected(graph)
    numbered: nx.DiGraph = nx.relabel_nodes(graph, {a: i for i, a in enumerate(labels)}, copy=True)
    receives = nx.to_scipy_sparse_array(
        numbered, nodelist=range(len(labels)), weight=None, dtype=np.float64
    ).T.tocsr()
    pattern = csr_array(receives + csr_array(np.eye(len(labels))))
    is_custom = rows is not None or columns is not None
    weights = _check_weights(rows, pattern, "rows", 1)
    shares = _check_weights(columns, pattern, "columns", 0)
    rule = "custom" if is_custom else "even"
    return Network(nx.freeze(numbered), weights, name, rule, labels, draws, shares)


def _check_connected(graph: nx.DiGraph) -> None:
    parts = list(nx.strongly_connected_components(graph))
    if len(parts) > 1:
        order = {node: i for i, node in enumerate(graph)}
        part = sorted(sorted(parts, key=len)[0], key=order.__getitem__)
        shown = ", ".join(map(repr, part[:5])) + (", ..." if len(part) > 5 else "")
        raise ValueError(
            f"the graph is not strongly connected: nothing gets from {{{shown}}} to all others and "
            f"back; add arcs, or take one of its {len(parts)} strongly connected components"
        )


def _even_weights(pattern: csr_array, axis: int) -> csr_array:
    """Return even weights: 1 / the number of entries in the row (axis 1) or column (axis 0)."""
    weights = csr_array(pattern, copy=True)
    counts = np.asarray(pattern.sum(axis=axis)).ravel()
    rows = np.repeat(np.arange(weights.shape[0]), np.diff(weights.indptr))
    weights.data = 1 / counts[rows if axis == 1 else weights.indices]
    return make_read_only(weights)


def _check_weights(matrix: Matrix | None, pattern: csr_array, name: str, axis: int) -> csr_array:
    """Return the weights of a user, who must give some that fit this graph, or even ones."""
    if matrix is None:
        return _even_weights(pattern, axis)
    m = np.asarray(matrix.toarray() if isinstance(matrix, sparray | spmatrix) else matrix, float)
    if m.shape != pattern.shape:
        raise ValueError(f"{name} has shape {m.shape}; the graph needs {pattern.shape}")
    on_arcs = pattern.toarray() != 0
    for wrong, fault in (
        (~np.isfinite(m) | (m < 0), "no weight may be negative"),
        (~on_arcs & (m != 0), "the graph has no arc ({j}, {i})"),
        (on_arcs & (m == 0), "an arc ({j}, {i}), or an agent itself, needs a weight above 0"),
    ):
        if wrong.any():
            i, j = (int(k) for k in np.argwhere(wrong)[0])
            raise ValueError(f"{name}[{i}, {j}] is {m[i, j]:.6g}; {fault.format(i=i, j=j)}")
    sums = m.sum(axis=axis)
    if np.abs(sums - 1).max() > 1e-9:
        k = int(np.abs(sums - 1).argmax())
        line = "row" if axis == 1 else "column"
        raise ValueError(f"{line} {k} of {name} sums to {sums[k]:.12g}; each must sum to 1")
    return make_read_only(csr_array(m))
