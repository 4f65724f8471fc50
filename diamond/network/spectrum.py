"""Extreme eigenvalues of mixing matrices, at a cost that grows with the edges."""

from collections.abc import Sequence
from functools import reduce
from itertools import takewhile

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array


def largest_eigenvalues(
    matrix: csr_array, count: int, above: float, dense_up_to: int = 512
) -> NDArray[np.float64]:
    """Return the `count` largest eigenvalues, ascending; none may exceed `above`.

    Lanczos is fast if the end of the spectrum is well separated (random graphs, stars) and fails if
    it is crowded (long rings and paths). There the graph is thin, a sparse factorisation is cheap,
    and inverse iteration from `above` converges at once.
    """
    size = matrix.shape[0]
    if size <= dense_up_to:
        return np.linalg.eigvalsh(matrix.toarray())[-count:]
    from scipy.sparse.linalg import ArpackNoConvergence, eigsh

    # ARPACK would draw a random start, and the result would change between runs.
    start = np.random.default_rng(0).standard_normal(size)
    options = {"k": count, "v0": start, "return_eigenvectors": False}
    try:
        values = eigsh(matrix, which="LA", tol=1e-10, ncv=32, maxiter=40, **options)
    except ArpackNoConvergence:
        values = eigsh(matrix.tocsc(), sigma=above, which="LM", **options)
    return np.sort(values)


def contraction(weights: csr_array) -> float:
    """Return the contraction of one round: lam = max(|lambda_2|, |lambda_m|).

    lam = || M - 1 1^T / m ||
    """
    agents = weights.shape[0]
    if agents == 1:
        return 0.0
    if agents <= 2048:
        return float(np.abs(np.linalg.eigvalsh(weights.toarray() - 1 / agents)).max())
    # `above` must not be an eigenvalue (1 is one), or the factorisation is singular.
    above = 1 + 1e-7
    second = largest_eigenvalues(weights, 2, above)[0]
    # Gershgorin: lambda_m >= 2 min M_ii - 1, which usually bounds the other end at no cost.
    if 1 - 2 * weights.diagonal().min() <= second:
        return float(second)
    return float(max(second, largest_eigenvalues(-weights, 1, above)[0]))


def smallest_eigenvalue(weights: csr_array) -> float:
    """Return the smallest eigenvalue of a mixing matrix."""
    return float(-largest_eigenvalues(-weights, 1, 1 + 1e-7)[0])


POWER_STEPS = 2000  # steps of the power method, for products too large to form


def product_contraction(rounds: Sequence[csr_array], dense_up_to: int = 512) -> float:
    """Return |lambda_2| of the product R_B ... R_1 of row-stochastic matrices.

    This is the contraction of the disagreement over all of them. Larger matrices use the power
    method on vectors orthogonal to the consensus direction.
    """
    agents = rounds[0].shape[0]
    if agents == 1:
        return 0.0
    weights = perron_vector(rounds, dense_up_to)
    if agents <= dense_up_to:
        product = _product(rounds)
        return float(np.abs(np.linalg.eigvals(product - np.outer(np.ones(agents), weights))).max())
    vector = np.random.default_rng(0).standard_normal(agents)
    logs = []
    for _ in range(max(2, POWER_STEPS // len(rounds))):
        for matrix in rounds:
            vector = matrix @ vector
        vector -= weights @ vector
        size = np.linalg.norm(vector)
        if size < 1e-300:
            return 0.0
        logs.append(np.log(size))
        vector /= size
    return float(np.exp(np.mean(logs[len(logs) // 2 :])))


def _product(matrices: Sequence[csr_array]) -> NDArray[np.float64]:
    """Return the product R_B ... R_1 as a dense matrix."""
    return reduce(lambda product, matrix: matrix @ product, matrices, np.eye(matrices[0].shape[0]))


def perron_vector(rounds: Sequence[csr_array], dense_up_to: int = 512) -> NDArray[np.float64]:
    """Return pi with pi^T R_B ... R_1 = pi^T and sum_i pi_i = 1."""
    agents = rounds[0].shape[0]
    backward = [matrix.T.tocsr() for matrix in reversed(rounds)]
    pi = np.full(agents, 1 / agents)
    if agents <= dense_up_to:
        system = np.vstack([_product(backward) - np.eye(agents), np.ones(agents)])
        pi = np.linalg.lstsq(system, np.append(np.zeros(agents), 1.0), rcond=None)[0]
        return np.maximum(pi, 0.0) / np.maximum(pi, 0.0).sum()
    for _ in range(max(2, POWER_STEPS // len(rounds))):
        for matrix in backward:
            pi = matrix @ pi
    return pi / pi.sum()


def tracking_limit(
    rows: Sequence[csr_array],
    columns: Sequence[csr_array],
    sends_before_gradient: bool,
    dense_up_to: int = 64,
) -> float:
    """Return the largest step times curvature with stable tracking, to a factor of 3/4.

        s <- R (s - a u),   u <- C u + s - s'       (sends_before_gradient: s <- R s - a u)

    with curvature 1 at every agent, over a period of matrices R and C. If eigenvalues are not real,
    as on one-way rings, the limit is far below the 2 of undirected links. One eigenvalue is always
    1: sum u = sum s. For large matrices the result is the lower bound (1 - lam)^2.
    """
    agents = rows[0].shape[0]
    if agents == 1:
        return 2.0
    if agents > dense_up_to:
        return min(2.0, (1 - product_contraction(rows) ** (1 / len(rows))) ** 2)
    eye = np.eye(agents)
    dense = [(r.toarray(), c.toarray()) for r, c in zip(rows, columns)]

    def stable(step: float) -> bool:
        period = np.eye(2 * agents)
        for r, c in dense:
            moved = np.hstack([r, -step * (eye if sends_before_gradient else r)])
            period = np.vstack([moved, moved + np.hstack([-eye, c])]) @ period
        sizes = np.sort(np.abs(np.linalg.eigvals(period)))
        return bool(sizes[-2] < 1 - 1e-9 and sizes[-1] < 1 + 1e-6)

    steps = [2.0 * 0.75**k for k in reversed(range(40))]
    return max([steps[0], *takewhile(stable, steps)])
