"""Properties of the weights of a round, or of successive rounds."""

from collections.abc import Sequence

import numpy as np
from scipy.sparse import csr_array


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
