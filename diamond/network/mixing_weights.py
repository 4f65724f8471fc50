"""Mixing matrices: named rules for a graph, the check of a custom matrix, successive matrices.

Each rule gives one weight to every edge; then M_ii = 1 - sum_j M_ij, so that M is symmetric and its
rows and columns sum to 1.
"""

from collections.abc import Callable, Sequence
from typing import TypeAlias

import networkx as nx
import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array, diags_array, sparray, spmatrix

from diamond.core.suggestions import did_you_mean
from diamond.network.spectrum import largest_eigenvalues

Floats = NDArray[np.float64]
Matrix: TypeAlias = ArrayLike | sparray | spmatrix


def laplacian(adjacency: csr_array) -> Floats:
    """Compute the paper's weights; the smallest eigenvalue of M is 1/3.

    M = I - 2 V / (3 rho_max(V)),   V the graph Laplacian
    """
    return np.full(adjacency.nnz, 2 / (3 * _rho_max(adjacency)))


def metropolis(adjacency: csr_array) -> Floats:
    """Compute Metropolis weights, which need only the degrees of the two ends.

    M_ij = 1 / (1 + max(d_i, d_j))
    """
    degrees = _degrees(adjacency)
    edges = adjacency.tocoo()
    return 1 / (1.0 + np.maximum(degrees[edges.row], degrees[edges.col]))


def max_degree(adjacency: csr_array) -> Floats:
    """Compute one weight for all edges from the largest degree.

    M = I - V / (d_max + 1)
    """
    return np.full(adjacency.nnz, 1 / (_degrees(adjacency).max() + 1.0))


def best_constant(adjacency: csr_array) -> Floats:
    """Compute the constant edge weight with the smallest lam that keeps M non-negative.

        M = I - a V,   a = min(2 / (rho_max(V) + rho_2(V)), 1 / d_max)

    lam = max(1 - a rho_2, a rho_max - 1) decreases up to the first bound, so the minimum of both
    bounds is optimal (a star needs the second).
    """
    rho_2 = -largest_eigenvalues(-_laplacian_matrix(adjacency), 2, above=1e-7)[0]
    best = 2 / (_rho_max(adjacency) + rho_2)
    return np.full(adjacency.nnz, min(best, 1 / _degrees(adjacency).max()))


RULES: dict[str, Callable[[csr_array], Floats]] = {
    rule.__name__: rule for rule in (laplacian, metropolis, max_degree, best_constant)
}


def mixing_matrix(graph: nx.Graph, mixing: str | Matrix) -> tuple[csr_array, str]:
    """Return the weights of `graph` (nodes 0..m-1, connected) and the rule's name or "custom"."""
    if not isinstance(mixing, str):
        return check_mixing_matrix(mixing, graph), "custom"
    if mixing not in RULES:
        raise ValueError(f"no mixing rule {mixing!r}; {did_you_mean(mixing, RULES)}")
    adjacency = _adjacency(graph)
    if adjacency.nnz == 0:
        return csr_array(np.ones((1, 1))), mixing
    edges = adjacency.copy()
    edges.data = RULES[mixing](adjacency)
    # Rounding may leave -1e-16 where the exact diagonal is 0.
    diagonal = np.maximum(1 - edges.sum(axis=1), 0.0)
    return _canonical(edges, diagonal), mixing


def check_mixing_matrix(matrix: Matrix, graph: nx.Graph) -> csr_array:
    """Check that a custom matrix mixes over `graph`.

    Symmetric, non-negative, rows and columns summing to 1, M_ij != 0 exactly on edges, lam < 1.
    """
    agents = graph.number_of_nodes()
    m = np.asarray(matrix.toarray() if isinstance(matrix, sparray | spmatrix) else matrix)
    if m.shape != (agents, agents):
        raise ValueError(
            f"the mixing matrix has shape {m.shape}; "
            f"{agents} agents need one of shape {(agents, agents)}"
        )
    if m.dtype.kind not in "iuf":
        raise ValueError(f"the mixing matrix has entries of type {m.dtype}; give real numbers")
    m = m.astype(np.float64)

    def reject(where: NDArray[np.bool_], fault: str) -> None:
        """Raise for the first invalid entry, if any."""
        if where.any():
            i, j = (int(k) for k in np.argwhere(where)[0])
            raise ValueError(
                f"the mixing matrix has M[{i}, {j}] = {m[i, j]:.6g}"
                + fault.format(i=i, j=j, other=m[j, i])
            )

    # Rounding in float64 stays below this for any size of graph; float32 does not, and the agents'
    # average would drift.
    tolerance = 1e-9
    on_edges = _adjacency(graph).toarray() != 0
    off_edges = ~on_edges & ~np.eye(agents, dtype=bool)
    reject(~np.isfinite(m), "; every entry must be finite")
    reject(
        np.abs(m - m.T) > tolerance,
        " but M[{j}, {i}] = {other:.6g}; it must be symmetric, in float64",
    )
    reject(m < 0, "; no weight may be negative")
    for line, sums in (("row", m.sum(axis=1)), ("column", m.sum(axis=0))):
        if (worst := np.abs(sums - 1)).max() > tolerance:
            k = int(worst.argmax())
            raise ValueError(
                f"{line} {k} of the mixing matrix sums to {sums[k]:.12g}; "
                "every row and column must sum to 1, in float64"
            )
    reject(
        off_edges & (m != 0), " but the graph has no edge ({i}, {j}); add the edge or set it to 0"
    )
    reject(
        on_edges & (m == 0),
        " but the graph has the edge ({i}, {j}); give it a weight or remove the edge",
    )
    # With the checks above and a connected graph, lam = 1 only if -1 is an eigenvalue, which
    # requires a bipartite graph with a zero diagonal (Perron and Frobenius).
    if agents > 1 and not m.diagonal().any() and nx.is_bipartite(graph):
        raise ValueError(
            "the mixing matrix has lam = 1: every M_ii is 0 and the graph is bipartite, so the "
            "two sides would swap values for ever; give some agent a weight M_ii > 0"
        )
    return _canonical(csr_array(np.where(on_edges, m, 0.0)), m.diagonal())


def _adjacency(graph: nx.Graph) -> csr_array:
    # `weight=None`: an edge attribute called weight is not a mixing weight.
    adjacency = csr_array(
        nx.to_scipy_sparse_array(graph, nodelist=range(len(graph)), weight=None, dtype=np.float64)
    )
    adjacency.sort_indices()
    return adjacency


def _degrees(adjacency: csr_array) -> NDArray[np.int64]:
    return np.diff(adjacency.indptr)


def _laplacian_matrix(adjacency: csr_array) -> csr_array:
    return csr_array(diags_array(_degrees(adjacency).astype(np.float64)) - adjacency)


def _rho_max(adjacency: csr_array) -> float:
    """Return the largest eigenvalue of the Laplacian.

        rho_max <= max over edges of d_i + d_j   (Anderson and Morley)

    An estimate slightly too small is harmless: M_ii >= 1 - 2 d_i / (3 (d_max + 1)) > 1/3.
    """
    degrees = _degrees(adjacency)
    edges = adjacency.tocoo()
    bound = (degrees[edges.row] + degrees[edges.col]).max()
    return float(largest_eigenvalues(_laplacian_matrix(adjacency), 1, above=bound * (1 + 1e-6))[-1])


def _canonical(edges: csr_array, diagonal: Floats) -> csr_array:
    """Return the canonical form: sorted, read-only, with all diagonal entries stored."""
    # The sum of two sparse matrices drops zeros, so the diagonal is set to ones first.
    weights = csr_array(edges + diags_array(np.ones(len(diagonal))))
    weights.sort_indices()
    rows = np.repeat(np.arange(len(diagonal)), np.diff(weights.indptr))
    weights.data[weights.indices == rows] = diagonal
    return make_read_only(weights)


def make_read_only(matrix: csr_array) -> csr_array:
    """Sort the entries of a matrix, and let nobody change them."""
    matrix.sort_indices()
    for part in (matrix.data, matrix.indices, matrix.indptr):
        part.setflags(write=False)
    return matrix


def is_balanced(weights: csr_array, shares: csr_array | None) -> bool:
    """Return whether the weights of a round sum to 1 in rows and columns, for totals too."""
    if shares is None:
        return True
    sums = np.abs(weights.sum(axis=0) - 1).max() < 1e-9
    return bool(sums and abs(weights - shares).max() < 1e-9)


def flooding_rounds(rounds: Sequence[csr_array]) -> int:
    """Return the rounds until information of every agent has reached all agents."""
    agents = rounds[0].shape[0]
    reached = csr_array(np.eye(agents))
    receives = [csr_array(weights != 0).astype(np.float64) for weights in rounds]
    for t in range(len(rounds) * agents):
        if reached.nnz == agents**2:
            return t
        reached = csr_array(receives[t % len(rounds)] @ reached)
        reached.data[:] = 1.0
    return len(rounds) * agents
