"""Extreme eigenvalues of symmetric sparse matrices, at a cost that grows with the edges."""

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.linalg import ArpackNoConvergence, eigsh


def largest(
    matrix: csr_array, count: int, above: float, dense_up_to: int = 512
) -> NDArray[np.float64]:
    """The `count` largest eigenvalues, ascending; none of them may exceed `above`.

    Lanczos is fast where the end of the spectrum is well spread (random graphs, stars) and
    fails where it is crowded (long rings and paths). There the graph is thin, a sparse
    factorisation costs next to nothing, and inverse iteration from `above` converges at once.
    """
    size = matrix.shape[0]
    if size <= dense_up_to:
        return np.linalg.eigvalsh(matrix.toarray())[-count:]
    # ARPACK draws its own start when given none, and the answer would change between runs.
    start = np.random.default_rng(0).standard_normal(size)
    try:
        values = eigsh(
            matrix,
            k=count,
            which="LA",
            v0=start,
            tol=1e-10,
            ncv=32,
            maxiter=40,
            return_eigenvectors=False,
        )
    except ArpackNoConvergence:
        values = eigsh(
            matrix.tocsc(), k=count, sigma=above, which="LM", v0=start, return_eigenvectors=False
        )
    return np.sort(values)


def contraction(weights: csr_array) -> float:
    """How much of the disagreement survives one round: lam = max(|lambda_2|, |lambda_m|).

    lam = || M - 1 1^T / m ||
    """
    agents = weights.shape[0]
    if agents == 1:
        return 0.0
    if agents <= 2048:
        return float(np.abs(np.linalg.eigvalsh(weights.toarray() - 1 / agents)).max())
    # `above` must not be an eigenvalue itself, or the factorisation is singular; 1 is one.
    above = 1 + 1e-7
    second = largest(weights, 2, above)[0]
    # Gershgorin: lambda_m >= 2 min M_ii - 1, which usually settles the other end for nothing.
    if 1 - 2 * weights.diagonal().min() <= second:
        return float(second)
    return float(max(second, largest(-weights, 1, above)[0]))


def smallest(weights: csr_array) -> float:
    """The smallest eigenvalue of a mixing matrix."""
    return float(-largest(-weights, 1, 1 + 1e-7)[0])
